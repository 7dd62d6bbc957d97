// The memory ladder: what a rank does when a step does not fit. Pure.
//
//   first failure in a step   caches are released, the step is tried again:
//                             what was in the way may be gone
//   each further one          the next rung
//
//   rungs of a rank   the plan's policies, then lean, recompute, offload: those
//                     that make any layer keep less
//   then              a smaller micro-batch, by all ranks together, as the
//                     number of micro-batches is part of a step's collectives
//   then              the run ends at its committed step
//
// A policy changes no result, so a rank climbs alone. After kCalmSteps
// committed steps in which no rank ran out of memory, one rung is given back,
// once in a run: of the micro-batch where that is smaller, else of the rank's
// policies. Whoever fails again after that stays lean; nothing oscillates.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::memory {

constexpr int64_t kCalmSteps = 20;

struct LadderRungs {
  // Policies in order, by name; the first is the plan's own. At least one.
  std::vector<std::string> policies;
  // Policies that would change nothing, each with its reason.
  std::vector<std::string> skipped;
  // Sizes of micro-batches after the plan's own, descending; if there is none,
  // the reason.
  std::vector<int64_t> micro_batches;
  std::string micro_batch_error;
};

// Where one rank stands. `num_cuts` and what belongs to it are the same on all
// ranks: they follow from votes alone.
struct LadderState {
  int64_t policy = 0;    // index into policies
  int64_t num_cuts = 0;  // how many of micro_batches were taken
  int64_t failures = 0;  // of this rank, in this step
  int64_t calm_steps = 0;
  bool policy_went_back = false;
  bool cut_went_back = false;
  bool operator==(const LadderState&) const = default;
};

enum class LadderMove {
  kStay,
  kTryAgain,           // as it is, with caches released
  kLeanerPolicy,       // with policies[state.policy]
  kSmallerMicroBatch,  // to be asked of all ranks: take_cut()
  kNothingLeft,        // the step cannot be done here
  kPolicyBack,         // policies[state.policy], one rung less
  kCutBack,            // one cut less, on all ranks
};

struct LadderDecision {
  LadderState state;
  LadderMove move = LadderMove::kStay;
  std::string reason;  // what happens now, in words; "" for kStay
};

// This rank's attempt at a step ran out of memory.
LadderDecision after_failure(const LadderRungs& rungs,
                             const LadderState& state);

// The vote says that some rank asked for a smaller micro-batch.
// REQUIRES: one is left.
LadderState take_cut(const LadderRungs& rungs, const LadderState& state);

// Some rank ran out of memory in this attempt: nobody counts calm steps.
LadderState after_failed_vote(const LadderState& state);

// A step was committed.
LadderDecision after_commit(const LadderRungs& rungs, const LadderState& state);

}  // namespace headroom::memory
