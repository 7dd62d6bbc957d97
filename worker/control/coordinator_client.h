// CoordinatorClient: the worker's side of the coordinator's service.
//
// No gRPC type shows here, so that files with tensors may include it. A thread
// of its own sends heartbeats (every 250 ms) and another follows the stream of
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
#include "parallel/plan/plan.h"
#include "proto/member_identity.h"
#include "proto/run_progress.h"

namespace headroom::control {

enum class Action { kRun, kSaveAndExit, kExit };

// What this worker is to do, in one generation.
struct Assignment {
  uint64_t generation = 0;
  Action action = Action::kExit;
  int rank = 0;
  int local_rank = 0;
  int local_world_size = 1;
  int world_size = 1;
  bool has_one_agent = false;  // all ranks have the same one
  plan::Plan plan;
  std::string run_config_yaml;
  std::string run_directory;
  // A checkpoint of the run directory to go on from, and the steps that it has;
  // "": as the configuration says.
  std::string resume_checkpoint;
  int64_t resume_steps = 0;
  std::string reason;
};

struct RunEvent {
  std::string event;
  int64_t step = 0;
  int rank = -1;
  std::string reason;
  std::string detail_json;
  bool warning = false;
};

// Why a worker cannot go on, and what it still has.
struct WorkerFailure {
  int exit_code = 0;
  std::string message;
  bool peer_lost = false;  // the cause is a lost peer, not this worker
  int64_t committed_steps = 0;
  // Holds a part of the state, which it cannot save alone.
  bool holds_a_part = false;
  // Steps of the newest checkpoint that it knows of; 0: none.
  int64_t checkpoint_steps = 0;
};

// This worker has left its generation at a committed step: because it was
// asked to, and keeps its state; or because a step ran out of memory where
// nothing leaner was left, and the state is in a checkpoint.
struct LeftGeneration {
  bool was_asked = false;
  int64_t committed_steps = 0;
  // As in WorkerFailure.
  bool holds_a_part = false;
  int64_t checkpoint_steps = 0;
  // For want of memory:
  std::string checkpoint;   // its folder
  std::string result_json;  // of rank 0: summary.json's content
  int failed_rank = 0;      // the lowest that had nothing leaner left
  // What this worker was last refused (worker/memory/memory_ladder.h).
  int64_t asked_bytes = 0, free_bytes = 0, limit_bytes = 0;
  int64_t room_bytes = 0;  // for tensors, now; 0: not known
};

class CoordinatorClient {
 public:
  // `address` is HOST:PORT. Connects, checks versions and joins; waits up to
  // 30 s for the coordinator to answer.
  static std::unique_ptr<CoordinatorClient> connect(
      const std::string& address, const wire::MemberIdentity& identity,
      const std::string& advertise_host,
      std::chrono::milliseconds patience = std::chrono::seconds(30));
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
  virtual void finish(int exit_code, const std::string& reason,
                      const std::string& result_json, int64_t step) = 0;
};

}  // namespace headroom::control
