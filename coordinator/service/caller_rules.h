// CallerRules: what a caller may report, and how long it may be. Each call
// carries the run and the generation; a worker reports about itself alone, an
// agent about its node. Texts are shortened, and control characters for
// terminals are removed.
//
// Threads: none of its own; the service's mutex is held in every call.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "coordinator/run/run_state.h"
#include "coordinator/service/call_admission.h"
#include "proto/coordinator.pb.h"
#include "proto/event_file.h"

namespace headroom::coordinator {

// The most bytes of a text that a member sends; a longer one is cut, and ends
// with "...".
inline constexpr size_t kMaxMessage = 4000;
inline constexpr size_t kMaxReason = 500;

// Cuts the event's reason; refuses an event whose detail, which cannot be cut,
// is too long.
Answer limit_words(wire::EventRecord& event);

// The end of a process's stderr, with its lines.
std::string end_of_last_words(std::string_view last_words);

class CallerRules {
 public:
  // The state must outlive the rules.
  CallerRules(const RunState& state, std::string run_digest)
      : state_(state), run_digest_(std::move(run_digest)) {}

  // `may_wait`: generation 0 is accepted, which agents and waiting workers
  // send.
  Answer check_run(const wire::Stamp& stamp, bool may_wait) const;
  // Whether the caller is this worker, and the call belongs to its generation.
  Answer check_worker(const wire::Stamp& stamp, const Caller& caller,
                      const std::string& worker_id, bool may_wait) const;
  // Whether the caller is this node's agent.
  Answer check_agent(const Caller& caller, const std::string& node_id) const;
  // A heartbeat counts also before its sender has received the generation that
  // it takes part in. An agent reports its own workers alone.
  Answer check_heartbeat(const Caller& caller,
                         const wire::HeartbeatRequest& request) const;
  // Whether it is the agent of the worker whose end it reports.
  Answer check_exit(const Caller& caller,
                    const wire::ReportExitRequest& request) const;

 private:
  const RunState& state_;
  const std::string run_digest_;
};

}  // namespace headroom::coordinator
