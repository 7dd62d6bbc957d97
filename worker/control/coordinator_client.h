// CoordinatorClient: the worker's side of the coordinator's service.
//
// No gRPC type shows here, so that files with tensors may include it. A thread
// of its own sends heartbeats (every 250 ms), to the agent that has left this
// process a channel, else to the coordinator; another follows the stream of
// assignments.
//
// A coordinator that is away may be one that is being started again: calls are
// repeated and streams opened anew, at most every second, for as long as
// `patience`; training goes on meanwhile.
//
// Threads: any thread may call any method.
// Errors: CommunicationError when the coordinator stays away; Error when it
// refuses.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "parallel/base/key_value_store.h"
#include "proto/beat_channel.h"
#include "proto/event_file.h"
#include "proto/member_identity.h"
#include "proto/reports.h"
#include "proto/run_progress.h"

namespace headroom::control {

enum class Action { kRun, kSaveAndExit, kExit };

// What this worker is to do, in one generation.
struct Assignment : wire::RankAssignment {
  uint64_t generation = 0;
  Action action = Action::kExit;
  std::string reason;
};

// An event without what its writer sets: sequence, time, report, reporter.
using RunEvent = wire::EventRecord;
using wire::FailureKind;
using wire::FinishedRun;
using wire::LeftGeneration;
using wire::WorkerFailure;

inline constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(30);

class CoordinatorClient {
 public:
  // `address` is HOST:PORT. Connects, checks versions and joins; waits up to
  // 30 s for the coordinator to answer. `agent`: this worker's end.
  static std::unique_ptr<CoordinatorClient> connect(
      const std::string& address, const wire::MemberIdentity& identity,
      const std::string& advertise_host,
      std::chrono::milliseconds patience = kPatience,
      wire::BeatChannel agent = {});
  virtual ~CoordinatorClient() = default;

  // Waits for the next assignment.
  virtual Assignment next_assignment() = 0;

  // The rendezvous map of the current generation. The client must outlive it.
  virtual std::unique_ptr<KeyValueStore> rendezvous(uint64_t generation) = 0;

  // What the next heartbeats carry.
  virtual void set_progress(const wire::RunProgress& progress) = 0;
  // Somebody asked to end at the next committed step (set by heartbeats).
  virtual bool stop_requested() const = 0;
  // The generation is to end there (set by heartbeats).
  virtual bool leave_requested(uint64_t generation) const = 0;

  virtual void commit(int64_t step, double loss,
                      const wire::RunProgress& progress) = 0;
  virtual void report_event(const RunEvent& event) = 0;
  virtual void report_failure(const WorkerFailure& failure) = 0;
  // The next assignment says how the run goes on.
  virtual void leave_generation(const LeftGeneration& left) = 0;
  virtual void finish(const FinishedRun& finished) = 0;
};

}  // namespace headroom::control
