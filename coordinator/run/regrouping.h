// Regrouping: how a run goes from one generation to the next at a committed
// step.
//
//   why          memory is short, a member was lost, or members come or go
//   letting go   every member that lives leaves its generation, and says which
//                step its state is of; for want of memory with a checkpoint
//   waiting      for those who are being started again, at most restart_wait
//   forming      with whoever is there; the workers find the newest step whose
//                state they have together (worker/checkpoint/state_restore.h)
//
// Threads: values and pure functions; time is an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/quorum.h"
#include "coordinator/run/run_ending.h"
#include "parallel/planner/replan.h"

namespace headroom::coordinator {

// Where a generation begins: a checkpoint in the run directory, and the steps
// that its state has. Without one, as the run's request says.
struct ResumePoint {
  int64_t committed_steps = 0;
  std::string checkpoint;  // its folder
  bool operator==(const ResumePoint&) const = default;
};

// Why a worker has left, which says what it has.
enum class LeavingCause { kMemory, kLostPeer, kAsked };

// What a worker says when it has left.
struct Leaving {
  ResumePoint from;
  // As the worker knows it: the failed rank is the same for all, the bytes are
  // its own. Of kMemory.
  planner::MemoryShortage shortage;
  std::string result_json;  // from rank 0: summary.json's content
  LeavingCause cause = LeavingCause::kMemory;
  SurvivorState state;  // but of kMemory, where the checkpoint has it
};

struct Regrouping {
  TimePoint begin;
  bool has_loss = false;                // else it is a memory shortage,
  bool is_asked = false;                // unless it was asked for
  std::map<std::string, Leaving> left;  // by worker
};

// Members that have not left, in the order of their ranks.
std::vector<RankedMember> still_to_leave(
    const Regrouping& regrouping, const std::vector<RankedMember>& members);

// The failed rank's bytes, and the room of whoever has least.
// REQUIRES: all members have left.
planner::MemoryShortage shortage_of(const Regrouping& regrouping,
                                    const std::vector<RankedMember>& members);

// --- with whom the next generation is formed --------------------------------

struct ReformingOptions {
  // For workers that are being started again.
  std::chrono::milliseconds restart_wait = std::chrono::seconds(5);
  // For the processes without which the run must not go on.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
  // For any agent, where all are silent: as long as an agent has patience.
  std::chrono::milliseconds agent_wait = std::chrono::seconds(30);
};

// What there is.
struct ReformingView {
  std::chrono::milliseconds elapsed{0};  // since the generation broke
  int ready = 0;                         // joined and in no generation any more
  int busy = 0;                          // members that live and have not left
  int coming = 0;  // slots whose worker starts, or is being started again
  int wanted = 1;  // processes of the run's own plan
  int min_processes = 1;
  bool has_agent = true;  // that is not silent
};

struct ReformingDecision {
  enum class Kind { kWait, kForm, kGiveUp };
  Kind kind = Kind::kWait;
  std::string reason;
};

ReformingDecision decide_reforming(const ReformingView& view,
                                   const ReformingOptions& options);

}  // namespace headroom::coordinator
