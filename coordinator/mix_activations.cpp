#include "coordinator/mix_activations.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "coordinator/plan_memory.h"
#include "coordinator/plan_time.h"
#include "coordinator/stage_cut.h"
#include "parallel/base/check.h"
#include "parallel/plan/activation_mixture.h"
#include "parallel/plan/memory/row_costs.h"

namespace headroom {
namespace {

// Other micro-batches in flight have what they keep beside the one at work.
MixtureRow mixture_row(const memory::RowCosts& bytes, int64_t num_in_flight,
                       const RowCost& row) {
  MixtureRow result;
  for (const ActivationPolicy policy :
       {ActivationPolicy::kKeep, ActivationPolicy::kLean,
        ActivationPolicy::kRecompute}) {
    const memory::RowCost& cost = bytes[static_cast<size_t>(policy)];
    MixtureRow::Choice choice;
    choice.policy = policy;
    choice.seconds = row_work(row, policy);
    choice.kept_bytes = num_in_flight * cost.kept_bytes;
    choice.busy_bytes = (num_in_flight - 1) * cost.kept_bytes + cost.peak_bytes;
    result.choices.push_back(choice);
  }
  return result;
}

}  // namespace

double mix_activations(const RunConfig& config,
                       const std::vector<RowCost>& rows, Plan& plan) {
  HEADROOM_CHECK(plan.activation_policies.size() == rows.size(),
                 "a plan that does not say what rows keep");
  MemoryRequest whole = memory_request(config, plan, rows);
  const std::vector<StageShare> stages = stage_shares(plan, rows);
  double time = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto begin = static_cast<size_t>(stages[stage].begin);
    const auto end = static_cast<size_t>(stages[stage].end);
    const auto set = [&](const ActivationPolicies& policies) {
      std::ranges::copy(policies, whole.plan.activation_policies.begin() +
                                      static_cast<std::ptrdiff_t>(begin));
    };
    MeshCoordinates rank;
    rank.pipeline_stage = static_cast<int>(stage);
    const RankMicroBatch part = rank_micro_batch(whole, rank);
    const std::vector<memory::RowCosts> bytes =
        memory::row_costs(part.stage, part.extents, part.loss);
    MixtureRequest request;
    request.limit_bytes = config.memory_limit;
    for (size_t row = begin; row < end; ++row) {
      request.rows.push_back(
          mixture_row(bytes[row - begin], part.num_in_flight, rows[row]));
    }
    request.peak_bytes = [&](const ActivationPolicies& policies) {
      set(policies);
      return estimate_rank_memory(whole, rank).total();
    };
    const auto mixture = choose_mixture(request);
    HEADROOM_CHECK(mixture.has_value(), "a plan that does not fit");
    set(mixture->policies);
    time += mixture->seconds;
  }
  plan.activation_policies = std::move(whole.plan.activation_policies);
  predict_memory(config, rows, plan);
  return time;
}

}  // namespace headroom
