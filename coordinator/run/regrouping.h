// Regrouping: how a run goes from one generation to the next at a committed
// step.
//
//   why          a member was lost or has failed in a step, no member can do a
//                step with its memory, or members come or go
//   leaving      every member that lives leaves its generation, and says which
//                step its state is of; for want of memory with a checkpoint
//   waiting      for those who are being started again, at most restart_wait
//   forming      with whoever is there; the workers find the newest step whose
//                state they have together (worker/checkpoint/state_restore.h)
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

// The beginning of a generation: a checkpoint in the run directory, and the
// steps that its state has. Without one, as the run's request says.
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
  // What the worker knows of the shortage; the bytes are its own. Only for
  // kMemory.
  planner::MemoryShortage shortage;
  std::string result_json;  // summary.json's content, sent by rank 0
  LeavingCause cause = LeavingCause::kMemory;
  // What this worker holds; unused for kMemory, whose state is in the
  // checkpoint.
  SurvivorState state;
};

Leaving leaving_of(const wire::LeftGeneration& left);
SurvivorState survivor_state(const wire::WorkerFailure& failure);

struct Regrouping {
  TimePoint begin;
  // A member was lost or has failed; else there is no memory under this plan,
  bool has_loss = false;
  bool is_asked = false;  // unless it was asked for
  // What the first member did that failed itself and goes on, as a sentence:
  // "rank 1 ran out of memory".
  std::string failure;
  // A member tries again with leaner means than before.
  bool is_leaner = false;
  std::map<std::string, Leaving> left;  // how each worker left
};

// Members that live and have not left, in the order of their ranks.
std::vector<RankedMember> still_to_leave(
    const Regrouping& regrouping, const std::vector<RankedMember>& members,
    const Membership& membership);

// The failed rank's bytes, and the room of whoever has least.
// REQUIRES: all members have left.
planner::MemoryShortage shortage_of(const Regrouping& regrouping,
                                    const std::vector<RankedMember>& members);

// The newest state that any member left with; where all are lost, the steps
// that are known to have been committed: the workers look for a checkpoint.
ResumePoint newest_state(const Regrouping& regrouping, int64_t known_steps);

// Those of `there` who have the newest state first, then those who have any.
std::vector<Member> newest_first(const Regrouping& regrouping,
                                 std::vector<Member> there);

// What the run could still save of a worker that has left.
void note_left(RunEnding& ending, Survivor& survivor, const Leaving& leaving);

// The members but for the one that was lost, with what they left with.
void list_survivors(RunEnding& ending, const std::vector<RankedMember>& members,
                    const Regrouping& regrouping);

// --- with whom the next generation is formed --------------------------------

struct RegroupingOptions {
  // How long workers that are being started again are waited for.
  std::chrono::milliseconds restart_wait = std::chrono::seconds(5);
  // How long the least number of processes (--min-processes) is waited for.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
  // How long silent agents are waited for: as long as an agent has patience.
  std::chrono::milliseconds agent_wait = std::chrono::seconds(30);
};

// Who is there once every member that lives has left.
struct RegroupingView {
  std::chrono::milliseconds elapsed{0};  // time since the generation broke
  int ready = 0;                         // joined and in no generation any more
  int coming = 0;  // slots whose worker starts, or is being started again
  int wanted = 1;  // processes of the run's own plan
  int min_processes = 1;
  bool has_agent = true;  // false if there is none but silent ones
};

struct RegroupingDecision {
  enum class Kind { kWait, kForm, kGiveUp };
  Kind kind = Kind::kWait;
  std::string reason;
};

RegroupingDecision decide_regrouping(const RegroupingView& view,
                                     const RegroupingOptions& options);

// One membership with its ranks, its plan and the state it starts
// from, under a number that only rises.
//
// The number is the fence: a message of another generation, or of another run,
// is refused by number before anything looks at its content.
struct Generation {
  uint64_t number = 0;                // 0: none yet
  std::vector<RankedMember> members;  // members as ranked
  plan::Plan plan;
  ResumePoint begin;
  std::string reason;
  // The members, their ranks and the plan are those of the generation before,
  // whose state after `begin.committed_steps` all of them have.
  bool keeps_state = false;

  // Null if the worker is no member.
  const RankedMember* find(const std::string& worker_id) const;

 private:
  // The places of the members, found anew where they are others.
  mutable std::unordered_map<std::string, size_t> places_;
};

// Whether the members of `next` can go on with all that they have: they had the
// same places under the same plan in `previous`, and all left it able to, at
// the step at which `next` begins.
bool can_keep_state(const Generation& previous, const Generation& next,
                    const Regrouping& regrouping);

// Generations that end one after the other without a committed step between
// them, under one plan: so many are one too many.
inline constexpr size_t kMostFruitless = 5;
// Before the next one, after so many: 1, 2, 4 s.
constexpr std::chrono::seconds pause_after(size_t fruitless) {
  return std::chrono::seconds(1 << (fruitless - 1));
}

// REQUIRES: members.size() == plan.layout.world_size().
Generation next_generation(const Generation& previous,
                           std::vector<RankedMember> members,
                           const plan::Plan& plan, const ResumePoint& begin,
                           const std::string& reason);

// Nothing if a message stamped with `generation` and `run_digest` belongs to
// the current generation of this run, else why not, with both numbers.
// `may_wait`: the sender may stand outside generations, and says 0.
std::optional<std::string> stamp_error(uint64_t generation,
                                       const std::string& run_digest,
                                       uint64_t current_generation,
                                       const std::string& current_run_digest,
                                       bool may_wait);

}  // namespace headroom::coordinator
