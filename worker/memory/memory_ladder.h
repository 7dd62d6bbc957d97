// The memory ladder: a rank's reactions when a step does not fit, as pure
// functions.
//
//   first failure in a step   caches are released and the step is tried again,
//                             because other memory may be free by now
//   each further failure      the next rung
//
//   rungs of a rank   the plan's policies, then lean, recompute, offload: those
//                     that make any layer keep less
//   then              a smaller micro-batch on all ranks together, because the
//                     number of micro-batches is part of a step's collectives
//   then              another plan, or the run ends at its committed step
//
// A policy does not change results, so a rank can change it alone. After a
// failure all ranks leave their generation, if there are several. When the next
// generation begins, the ranks agree on their shared state (SharedRungs). The
// ladder is kept over generations of the same plan. It is finite, so a step is
// tried again only a finite number of times.
//
// After kCalmSteps committed steps in which no rank ran out of memory, the
// ladder goes back one rung, once in a run: it enlarges the micro-batch if the
// micro-batch was made smaller, else it restores a policy of the rank. A rank
// that fails again afterwards does not go back again.
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
  // Names of policies in order; the first is the plan's own. There is at least
  // one.
  std::vector<std::string> policies;
  // Policies that would have no effect, each with the reason.
  std::vector<std::string> skipped;
  // Micro-batch sizes smaller than the plan's, descending. If the list is
  // empty, micro_batch_error has the reason.
  std::vector<int64_t> micro_batches;
  std::string micro_batch_error;
};

// The current rung of one rank. During a generation `num_cuts`, `cut_went_back`
// and `calm_steps` are equal on all ranks.
struct LadderState {
  int64_t policy = 0;    // index into policies
  int64_t num_cuts = 0;  // entries of micro_batches used so far
  int64_t failures = 0;  // failures of this rank in this step
  int64_t calm_steps = 0;
  bool policy_went_back = false;
  bool cut_went_back = false;
  // This rank failed, and all settings that need less memory are used up.
  bool is_exhausted = false;
  // The argument of StageForward::set_num_parts in the current validation.
  int64_t validation_parts = 0;
  bool operator==(const LadderState&) const = default;
};

enum class LadderMove {
  kStay,
  kTryAgain,           // try the step again unchanged, after releasing caches
  kLeanerPolicy,       // continue with policies[state.policy]
  kSmallerMicroBatch,  // use the next smaller micro-batch on all ranks
  kNothingLeft,        // the step cannot be done on this rank
  kPolicyBack,         // go back to policies[state.policy]
  kCutBack,            // go back to the next larger micro-batch on all ranks
};

struct LadderDecision {
  LadderState state;
  LadderMove move = LadderMove::kStay;
  std::string reason;  // a sentence for users; "" for kStay
};

// Call after this rank's attempt at a step ran out of memory.
LadderDecision after_failure(const LadderRungs& rungs,
                             const LadderState& state);

// The values on which all ranks agree when a generation begins: each value
// becomes its maximum over the ranks, as on the rank that saves the most
// memory.
using SharedRungs = std::array<int64_t, 4>;
SharedRungs shared_rungs(const LadderState& state, int rank, int num_ranks);
struct AgreedRungs {
  LadderState state;
  // The lowest rank that has used up its settings that need less memory.
  std::optional<int> exhausted_rank;
};
// The state of this rank at the start of a generation; calm steps count from 0.
AgreedRungs take_over(const SharedRungs& maxima, const LadderState& state,
                      int num_ranks);

// Call after a step was committed.
LadderDecision after_commit(const LadderRungs& rungs, const LadderState& state);

// An event in a step: one line of events.jsonl.
struct StepEvent {
  EventKind kind{};
  std::string reason;            // text for users
  std::string detail_json = "";  // further fields as a JSON object; "" for none
};

// The memory that a failed allocation lacked; room_bytes is not set. `refusal`
// is the allocator's record of the failure; nullopt if the C++ heap failed.
MemoryShortfall memory_shortfall(
    const std::optional<activations::CountingAllocator::Refusal>& refusal);

// `phase` is "forward", "backward", "validation", "loader" or "checkpoint";
// `change` describes the reaction. The detail has the fields phase,
// asked_bytes, free_bytes, limit_bytes and change; an unknown number is null.
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

// Retries work between steps that may run out of memory on this rank alone,
// such as validation and writing files, after returning freed memory to the
// system. Work that communicates with other ranks cannot be retried by one
// rank.
class MemoryRetry {
 public:
  static constexpr int kAttempts = 3;

  // An object without a phase does not report failures.
  MemoryRetry() = default;
  MemoryRetry(std::string phase, std::function<void(const StepEvent&)> report,
              const devices::ComputeDevice& device = {})
      : phase_(std::move(phase)), report_(std::move(report)), device_(device) {}

  // Returns the result of `work`; rethrows the exception of its last attempt.
  // REQUIRES: `work` does not communicate, and has no effect if it throws.
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

  // Reports a failure and returns freed memory to the system.
  void note(const std::string& failure, const std::string& change) const;

 private:
  std::string phase_;
  std::function<void(const StepEvent&)> report_;
  devices::ComputeDevice device_;  // the device whose caches are also released
};

}  // namespace headroom::memory
