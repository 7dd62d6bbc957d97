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
//   then              another plan, or the run ends at its committed step
//
// A policy changes no result, so a rank moves alone. The ranks of several leave
// their generation after a failure, and agree on what is common to them when
// the next one begins (SharedRungs). The ladder outlives generations of one
// plan: it is finite, and so is the number of times that a step is tried again.
//
// After kCalmSteps committed steps in which no rank ran out of memory, one rung
// is given back, once in a run: of the micro-batch where that is smaller, else
// of the rank's policies. A rank that fails again after that stays lean.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/event_kinds.h"
#include "parallel/base/memory_shortfall.h"
#include "parallel/devices/compute_device.h"

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

// The rung of one rank. During a generation `num_cuts`, `cut_went_back` and
// `calm_steps` are the same on all ranks.
struct LadderState {
  int64_t policy = 0;    // index into policies
  int64_t num_cuts = 0;  // how many of micro_batches were taken
  int64_t failures = 0;  // this rank's, in this step
  int64_t calm_steps = 0;
  bool policy_went_back = false;
  bool cut_went_back = false;
  bool is_exhausted = false;  // this rank failed with nothing leaner left
  // StageForward::set_num_parts of the validation that is under way.
  int64_t validation_parts = 0;
  bool operator==(const LadderState&) const = default;
};

enum class LadderMove {
  kStay,
  kTryAgain,           // unchanged, but with caches released
  kLeanerPolicy,       // policies[state.policy] is next
  kSmallerMicroBatch,  // one cut more, for all ranks to take over
  kNothingLeft,        // the step cannot be done here
  kPolicyBack,         // policies[state.policy], one rung less
  kCutBack,            // one cut less, on all ranks
};

struct LadderDecision {
  LadderState state;
  LadderMove move = LadderMove::kStay;
  std::string reason;  // what happens now; "" for kStay
};

// This rank's attempt at a step ran out of memory.
LadderDecision after_failure(const LadderRungs& rungs,
                             const LadderState& state);

// What all ranks take over from the leanest of them when a generation begins:
// the element-wise maxima of what each rank tells.
using SharedRungs = std::array<int64_t, 4>;
SharedRungs shared_rungs(const LadderState& state, int rank, int num_ranks);
struct AgreedRungs {
  LadderState state;
  std::optional<int> exhausted_rank;  // the lowest that has nothing leaner left
};
// A generation begins calm: no rank has counted a step.
AgreedRungs take_over(const SharedRungs& maxima, const LadderState& state,
                      int num_ranks);

// A step was committed.
LadderDecision after_commit(const LadderRungs& rungs, const LadderState& state);

// What is told of a step: one line of events.jsonl.
struct StepEvent {
  EventKind kind{};
  std::string reason;            // words that people read
  std::string detail_json = "";  // further fields, an object; "" for none
};

// What an allocation that failed was short of, without room_bytes. `refusal` is
// the allocator's; none where the C++ heap refused.
MemoryShortfall memory_shortfall(
    const std::optional<activations::CountingAllocator::Refusal>& refusal);

// `phase` is "forward", "backward", "validation", "loader" or "checkpoint";
// `change` says what is done about it. The detail has the fields phase,
// asked_bytes, free_bytes, limit_bytes and change, null where not known or
// none.
StepEvent out_of_memory_event(const std::string& phase,
                              const std::string& failure,
                              const MemoryShortfall& shortfall,
                              const std::string& change);
inline StepEvent out_of_memory_event(
    const std::string& phase, const std::string& failure,
    const std::optional<activations::CountingAllocator::Refusal>& refusal,
    const std::string& change) {
  return out_of_memory_event(phase, failure, memory_shortfall(refusal), change);
}

// Work between steps that may run out of memory on this rank alone, as
// validation and files do, and is tried again once freed memory has gone back
// to the system. Work that exchanges with other ranks cannot be tried again by
// one of them.
class MemoryRetry {
 public:
  static constexpr int kAttempts = 3;

  // A retry without a phase tells nobody.
  MemoryRetry() = default;
  MemoryRetry(std::string phase, std::function<void(const StepEvent&)> report,
              const devices::ComputeDevice& device = {})
      : phase_(std::move(phase)), report_(std::move(report)), device_(device) {}

  // Returns the result of `work`, which leaves nothing behind when it throws.
  // Rethrows what its last attempt throws. REQUIRES: no communication in it.
  template <typename Work>
  auto run(const Work& work) const {
    for (int attempt = 1;; ++attempt) {
      std::string failure;
      try {
        return work();
      } catch (const c10::OutOfMemoryError& error) {
        if (attempt == kAttempts) throw;
        failure = error.what_without_backtrace();
      } catch (const std::bad_alloc&) {
        if (attempt == kAttempts) throw;
        failure = "the host's memory is used up";
      }
      note(failure, "caches are released and it is tried again");
    }
  }

  // Tells of a failure and gives freed memory back.
  void note(const std::string& failure, const std::string& change) const;

 private:
  std::string phase_;
  std::function<void(const StepEvent&)> report_;
  devices::ComputeDevice device_;  // its caches are released, and the host's
};

}  // namespace headroom::memory
