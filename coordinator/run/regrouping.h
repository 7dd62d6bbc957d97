// Regrouping: how a run changes from one generation to the next at a committed
// step.
//
//   cause      a member was lost or failed in a step, a step does not fit into
//              memory, or workers join or leave
//   leaving    every live member leaves its generation and reports the step of
//              its state; for lack of memory it saves a checkpoint first
//   waiting    the run waits for workers that are being restarted, at most
//              restart_wait
//   forming    the available workers form the next generation and find the
//              newest step whose state they have together
//              (worker/checkpoint/state_restore.h)
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/quorum.h"
#include "coordinator/run/run_ending.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/replan.h"
#include "proto/reports.h"

namespace headroom::coordinator {

// The state in which a generation begins: a checkpoint in the run directory and
// its number of committed steps. Without a checkpoint, the run's configuration
// defines the state.
struct ResumePoint {
  int64_t committed_steps = 0;
  std::string checkpoint;  // folder of the checkpoint; may be empty
  bool operator==(const ResumePoint&) const = default;
};

// Why a worker has left its generation. The cause determines which state the
// worker still has.
enum class LeavingCause { kMemory, kLostPeer, kAsked };

// The report of a worker that has left its generation.
struct Leaving {
  ResumePoint from;
  // Set only for kMemory: the shortage, with the bytes of this worker.
  planner::MemoryShortage shortage;
  std::string result_json;    // summary.json's content, sent by rank 0
  std::string float16_error;  // why the next generation must use float32, or ""
  LeavingCause cause = LeavingCause::kMemory;
  // This worker's state. Unused for kMemory, whose state is in the checkpoint.
  SurvivorState state;
};

Leaving leaving_of(const wire::LeftGeneration& left);
SurvivorState survivor_state(const wire::WorkerFailure& failure);

struct Regrouping {
  TimePoint begin;
  // A member was lost or has failed.
  bool has_loss = false;
  // The generation was asked to end. If neither this nor has_loss is set,
  // memory is short.
  bool is_asked = false;
  // The failure of the first member that failed but continues, as a sentence:
  // "rank 1 ran out of memory".
  std::string failure;
  // A member will retry using less memory than before.
  bool is_leaner = false;
  std::map<std::string, Leaving> left;  // the workers that left, and how
};

// Live members that have not left, in rank order.
std::vector<RankedMember> still_to_leave(
    const Regrouping& regrouping, const std::vector<RankedMember>& members,
    const Membership& membership);

// Combines the failed rank's bytes with the smallest room_bytes of any rank.
// REQUIRES: all members have left.
planner::MemoryShortage shortage_of(const Regrouping& regrouping,
                                    const std::vector<RankedMember>& members);

// Returns the newest state of any member that has left. If all members are
// lost, returns `known_steps` without a checkpoint, and the workers look for a
// checkpoint.
ResumePoint newest_state(const Regrouping& regrouping, int64_t known_steps);

// Sorts the workers in `there` by committed steps, newest first; workers
// without a state come last.
std::vector<Member> newest_first(const Regrouping& regrouping,
                                 std::vector<Member> there);

// Records in `survivor` the state that a worker that has left could still save.
void note_left(RunEnding& ending, Survivor& survivor, const Leaving& leaving);

// Lists all members except the lost one, with the state of each that has left.
void list_survivors(RunEnding& ending, const std::vector<RankedMember>& members,
                    const Regrouping& regrouping);

// --- the workers of the next generation -------------------------------------

struct RegroupingOptions {
  // How long to wait for restarting workers before forming a generation without
  // them. A larger value avoids a second regrouping when they return, and
  // delays training when they do not.
  std::chrono::milliseconds restart_wait = std::chrono::seconds(5);
  // How long to wait for --min-processes workers before the run stops.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
  // How long to wait for silent agents when no worker is left: as long as an
  // agent tries to reach its coordinator.
  std::chrono::milliseconds agent_wait = std::chrono::seconds(30);
};

// The workers that are available after every live member has left.
struct RegroupingView {
  std::chrono::milliseconds elapsed{0};  // time since the generation failed
  int ready = 0;   // workers that joined and are no longer in a generation
  int coming = 0;  // slots whose worker is starting or restarting
  int wanted = 1;  // number of processes in the run's own plan
  int min_processes = 1;
  bool has_agent = true;  // false if all agents are silent
};

struct RegroupingDecision {
  enum class Kind { kWait, kForm, kGiveUp };
  Kind kind = Kind::kWait;
  std::string reason;
};

RegroupingDecision decide_regrouping(const RegroupingView& view,
                                     const RegroupingOptions& options);

// A fixed set of workers with their ranks, a plan and the state from which they
// begin. Generation numbers only rise. A message with another generation number
// or run digest is refused before its content is read.
struct Generation {
  uint64_t number = 0;                // 0 before the first generation
  std::vector<RankedMember> members;  // in rank order
  plan::Plan plan;
  ResumePoint begin;
  std::string reason;
  // Members, ranks and plan equal those of the previous generation, and all
  // members still have that generation's state after `begin.committed_steps`.
  bool keeps_state = false;

  // Returns nullptr if the worker is not a member.
  const RankedMember* find(const std::string& worker_id) const;

 private:
  // Cache of find(): index of each member. Rebuilt when the size differs.
  mutable std::unordered_map<std::string, size_t> places_;
};

// Returns true if the members of `next` can keep their state in memory. Each of
// them must have had the same rank under the same plan in `previous`, and must
// have left `previous` with intact state at the step at which `next` begins.
bool can_keep_state(const Generation& previous, const Generation& next,
                    const Regrouping& regrouping);

// The run stops when this many generations in a row, under one plan, have ended
// without a committed step. A larger value survives longer network failures.
inline constexpr size_t kMostFruitless = 5;
// The pause before the next generation after `fruitless` generations without a
// committed step: 1, 2, 4 s, ...
constexpr std::chrono::seconds pause_after(size_t fruitless) {
  return std::chrono::seconds(1 << (fruitless - 1));
}

// REQUIRES: members.size() == plan.layout.world_size().
Generation next_generation(const Generation& previous,
                           std::vector<RankedMember> members,
                           const plan::Plan& plan, const ResumePoint& begin,
                           const std::string& reason);

// Returns nullopt if a message with this generation and run digest belongs to
// the current generation of this run; else the reason, with both values. With
// `may_wait` a sender that is in no generation is accepted too; it sends 0 as
// its generation.
std::optional<std::string> stamp_error(uint64_t generation,
                                       const std::string& run_digest,
                                       uint64_t current_generation,
                                       const std::string& current_run_digest,
                                       bool may_wait);

}  // namespace headroom::coordinator
