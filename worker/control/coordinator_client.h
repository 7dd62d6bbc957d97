// CoordinatorClient: the worker's client of the coordinator's service.
//
// This header shows no gRPC type, so that files with tensors may include it.
// One thread sends heartbeats every 250 ms: to the agent if the agent has given
// this process a channel, else to the coordinator. Another thread reads the
// stream of assignments.
//
// An unreachable coordinator may be restarting. So calls are repeated and
// streams are opened again, at most once a second, for as long as `patience`.
// Training continues during this time.
//
// Threads: any thread may call any method. Errors: CommunicationError if the
// coordinator stays unreachable; Error if it refuses.
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

// The task of this worker in one generation.
struct Assignment : wire::RankAssignment {
  uint64_t generation = 0;
  Action action = Action::kExit;
  std::string reason;
};

// An event. The fields sequence, time, report and reporter are filled in later.
using RunEvent = wire::EventRecord;
using wire::FailureKind;
using wire::FinishedRun;
using wire::LeftGeneration;
using wire::WorkerFailure;

inline constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(30);

class CoordinatorClient {
 public:
  // Connects to `address` (HOST:PORT), checks versions and joins. Waits up to
  // 30 s for the coordinator to answer. `patience` is how long the coordinator
  // may be unreachable later: a longer time survives a slower restart, a
  // shorter one detects a lost coordinator sooner. `agent` is this worker's end
  // of the channel to its agent.
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

  // Sets the progress that the next heartbeats report.
  virtual void set_progress(const wire::RunProgress& progress) = 0;
  // Whether the run was asked to stop at the next committed step. Heartbeats
  // bring the request.
  virtual bool stop_requested() const = 0;
  // Whether this generation is to end at the next committed step. Heartbeats
  // bring the request.
  virtual bool leave_requested(uint64_t generation) const = 0;

  virtual void commit(int64_t step, double loss,
                      const wire::RunProgress& progress) = 0;
  virtual void report_event(const RunEvent& event) = 0;
  virtual void report_failure(const WorkerFailure& failure) = 0;
  // Leaves the generation. The next assignment decides how the run continues.
  virtual void leave_generation(const LeftGeneration& left) = 0;
  virtual void finish(const FinishedRun& finished) = 0;
};

}  // namespace headroom::control
