// CallerRules: checks whether a caller may report what its call contains. Each
// call carries the run and the generation; a worker reports only about itself,
// an agent only about its node. Long texts are cut, and control characters for
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

// Most bytes of a text that a member sends; a longer text is cut and ends with
// "...".
inline constexpr size_t kMaxMessage = 4000;
inline constexpr size_t kMaxReason = 500;

// Cuts the event's reason. Refuses a detail that is too long, because JSON
// cannot be cut.
Answer limit_words(wire::EventRecord& event);

// The last 64 KiB of a process's stderr; line breaks are kept.
std::string end_of_last_words(std::string_view last_words);

Answer check_length(const google::protobuf::Message& message, size_t most);

class CallerRules {
 public:
  // The state must outlive the rules.
  CallerRules(const RunState& state, std::string run_digest)
      : state_(state), run_digest_(std::move(run_digest)) {}

  // Refuses a call that the caller may not make. Calls without an overload
  // below are accepted only from a worker of the current generation that
  // reports about itself.
  template <typename Request>
  Answer check(const Caller& caller, const Request& request) const {
    if constexpr (requires { request.worker_id(); }) {
      return check_worker(request.stamp(), caller, request.worker_id());
    } else {
      return check_worker(request.stamp(), caller, caller.identity.worker_id);
    }
  }
  // Also accepted from a worker that is in no generation.
  Answer check(const Caller& caller,
               const wire::ReportFailureRequest& request) const {
    return check_worker(request.stamp(), caller, request.worker_id(),
                        /*may_wait=*/true);
  }
  // Also accepted before the sender has received its new generation. An agent
  // may report only its own workers.
  Answer check(const Caller& caller,
               const wire::HeartbeatRequest& request) const;
  // Accepted only from the agent of the worker whose end is reported.
  Answer check(const Caller& caller,
               const wire::ReportExitRequest& request) const;
  // Any caller may drain the whole run; only a node's agent may drain the node.
  Answer check(const Caller& caller, const wire::DrainRequest& request) const;
  // Accepted from any caller; CallAdmission checks a registration.
  Answer check(const Caller&, const wire::RegisterRequest&) const { return {}; }
  Answer check(const Caller&, const wire::GetStatusRequest&) const {
    return {};
  }
  Answer check(const Caller&, const wire::StopRequest&) const { return {}; }

 private:
  // `may_wait`: also accepts generation 0, which agents and waiting workers
  // send.
  Answer check_run(const wire::Stamp& stamp, bool may_wait) const;
  // Refuses a call unless the caller is this worker and the call belongs to the
  // current generation.
  Answer check_worker(const wire::Stamp& stamp, const Caller& caller,
                      const std::string& worker_id,
                      bool may_wait = false) const;

  const RunState& state_;
  const std::string run_digest_;
};

}  // namespace headroom::coordinator
