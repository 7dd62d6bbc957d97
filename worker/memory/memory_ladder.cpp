#include "worker/memory/memory_ladder.h"

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/kernels/cpu/heap.h"

#include <unistd.h>
#include <nlohmann/json.hpp>

namespace headroom::memory {
namespace {

// Adds the reasons why rungs were skipped, if any.
std::string with_skipped(const LadderRungs& rungs, const std::string& text) {
  return rungs.skipped.empty()
             ? text
             : text + " (" + joined(rungs.skipped, "; ") + ")";
}

bool has_cut_left(const LadderRungs& rungs, const LadderState& state) {
  return state.num_cuts < static_cast<int64_t>(rungs.micro_batches.size());
}

std::string calm() { return cat("after ", kCalmSteps, " calm steps "); }

}  // namespace

LadderDecision after_failure(const LadderRungs& rungs,
                             const LadderState& state) {
  LadderDecision decision{state, LadderMove::kTryAgain, ""};
  decision.state.calm_steps = 0;
  if (++decision.state.failures == 1) {
    decision.reason = "caches are released and the step is tried again";
    return decision;
  }
  if (state.policy + 1 < static_cast<int64_t>(rungs.policies.size())) {
    ++decision.state.policy;
    decision.move = LadderMove::kLeanerPolicy;
    decision.reason = with_skipped(
        rungs, "from now on " +
                   rungs.policies[static_cast<size_t>(decision.state.policy)]);
    return decision;
  }
  if (has_cut_left(rungs, state)) {
    decision.move = LadderMove::kSmallerMicroBatch;
    ++decision.state.num_cuts;
    decision.reason = with_skipped(
        rungs, cat("from now on micro-batches of ",
                   rungs.micro_batches[static_cast<size_t>(state.num_cuts)],
                   " on all ranks"));
    return decision;
  }
  decision.move = LadderMove::kNothingLeft;
  decision.state.is_exhausted = true;
  decision.reason = with_skipped(
      rungs, "nothing leaner is left: " +
                 (rungs.micro_batches.empty()
                      ? rungs.micro_batch_error
                      : std::string("the micro-batch is at its smallest")));
  return decision;
}

SharedRungs shared_rungs(const LadderState& state, int rank, int num_ranks) {
  return {state.num_cuts, state.cut_went_back ? 1 : 0,
          state.is_exhausted ? num_ranks - rank : 0, state.validation_parts};
}

AgreedRungs take_over(const SharedRungs& maxima, const LadderState& state,
                      int num_ranks) {
  AgreedRungs agreed{state, std::nullopt};
  agreed.state.num_cuts = maxima[0];
  agreed.state.cut_went_back = maxima[1] != 0;
  agreed.state.calm_steps = 0;
  agreed.state.validation_parts = maxima[3];
  agreed.state.is_exhausted = false;  // exhaustion is reported only once
  if (maxima[2] > 0) {
    agreed.exhausted_rank = num_ranks - static_cast<int>(maxima[2]);
  }
  return agreed;
}

LadderDecision after_commit(const LadderRungs& rungs,
                            const LadderState& state) {
  LadderDecision decision{state, LadderMove::kStay, ""};
  LadderState& next = decision.state;
  next.failures = 0;
  const bool is_lean = state.policy > 0 || state.num_cuts > 0;
  if (!is_lean) return decision;
  if (++next.calm_steps < kCalmSteps) return decision;
  next.calm_steps = 0;
  if (state.num_cuts > 0) {
    if (state.cut_went_back) return decision;
    next.cut_went_back = true;
    --next.num_cuts;
    decision.move = LadderMove::kCutBack;
    decision.reason =
        calm() +
        (next.num_cuts == 0
             ? std::string("the plan's micro-batches again")
             : cat("micro-batches of ",
                   rungs.micro_batches[static_cast<size_t>(next.num_cuts) - 1],
                   " again"));
    return decision;
  }
  if (state.policy_went_back) return decision;
  next.policy_went_back = true;
  --next.policy;
  decision.move = LadderMove::kPolicyBack;
  decision.reason =
      calm() + rungs.policies[static_cast<size_t>(next.policy)] + " again";
  return decision;
}

void MemoryRetry::note(const std::string& failure,
                       const std::string& change) const {
  auto refusal = device_.memory().take_last_refusal();
  if (!refusal) refusal = activations::CountingAllocator::take_refusal();
  if (report_) report_(out_of_memory_event(phase_, failure, refusal, change));
  kernels::release_freed_memory();
  device_.memory().release_caches();
}

namespace {

int64_t free_bytes_of_machine() {
  return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryShortfall memory_shortfall(
    const std::optional<activations::CountingAllocator::Refusal>& refusal) {
  MemoryShortfall shortfall;
  shortfall.free_bytes = free_bytes_of_machine();
  if (!refusal) return shortfall;
  shortfall.asked_bytes = refusal->asked_bytes;
  if (refusal->limit_bytes != activations::CountingAllocator::kNoLimit) {
    shortfall.free_bytes = refusal->limit_bytes - refusal->live_bytes;
    shortfall.limit_bytes = refusal->limit_bytes;
  }
  return shortfall;
}

StepEvent out_of_memory_event(const std::string& phase,
                              const std::string& failure,
                              const MemoryShortfall& shortfall,
                              const std::string& change) {
  nlohmann::ordered_json detail = {{"phase", phase},
                                   {"asked_bytes", nullptr},
                                   {"free_bytes", shortfall.free_bytes},
                                   {"limit_bytes", nullptr},
                                   {"change", change}};
  if (shortfall.asked_bytes > 0) detail["asked_bytes"] = shortfall.asked_bytes;
  if (shortfall.limit_bytes > 0) detail["limit_bytes"] = shortfall.limit_bytes;
  return {EventKind::kOutOfMemory, phase + ": " + failure + "; " + change,
          detail.dump()};
}

}  // namespace headroom::memory
