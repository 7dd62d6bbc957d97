#include "coordinator/mix_activations.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "configs/row_time.h"
#include "coordinator/plan_memory.h"
#include "coordinator/stage_cut.h"
#include "parallel/base/check.h"
#include "parallel/plan/activation_mixture.h"

namespace headroom {
namespace {

double time_of(const RowTime& time, ActivationPolicy policy) {
  switch (policy) {
    case ActivationPolicy::kKeep:
      return time.keep;
    case ActivationPolicy::kLean:
      return time.lean;
    case ActivationPolicy::kRecompute:
      return time.recompute;
    case ActivationPolicy::kOffload:
      return time.offload;
  }
  HEADROOM_CHECK(false, "an unknown policy");
}

// While it is at work a row has its maps, and its output's gradient; of a row
// that is recomputed these are a lean row's.
MixtureRow mixture_row(const RowKeeps& keeps, const RowCost& row) {
  const RowTime time = row_time(row);
  MixtureRow result;
  for (const ActivationPolicy policy :
       {ActivationPolicy::kKeep, ActivationPolicy::kLean,
        ActivationPolicy::kRecompute}) {
    MixtureRow::Choice choice;
    choice.policy = policy;
    choice.seconds = time_of(time, policy);
    choice.kept_bytes = keeps.bytes(policy);
    choice.busy_bytes =
        (policy == ActivationPolicy::kKeep ? keeps.keep : keeps.lean) +
        2 * keeps.map;
    result.choices.push_back(choice);
  }
  return result;
}

}  // namespace

double mix_activations(const RunConfig& config,
                       const std::vector<RowCost>& rows, Plan& plan) {
  HEADROOM_CHECK(plan.activation_policies.size() == rows.size(),
                 "a plan that does not say what rows keep");
  const std::vector<RowKeeps> keeps = rows_keep(config, plan, rows);
  MemoryRequest memory = memory_request(config, plan, rows);
  const std::vector<StageShare> stages = stage_shares(config, plan, rows);
  double time = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto begin = static_cast<size_t>(stages[stage].begin);
    const auto end = static_cast<size_t>(stages[stage].end);
    const auto set = [&](const ActivationPolicies& policies) {
      std::ranges::copy(policies, memory.plan.activation_policies.begin() +
                                      static_cast<std::ptrdiff_t>(begin));
    };
    MixtureRequest request;
    request.limit_bytes = config.memory_limit;
    for (size_t row = begin; row < end; ++row) {
      request.rows.push_back(mixture_row(keeps[row], rows[row]));
    }
    request.peak_bytes = [&](const ActivationPolicies& policies) {
      set(policies);
      MeshCoordinates rank;
      rank.pipeline_stage = static_cast<int>(stage);
      return estimate_rank_memory(memory, rank).total();
    };
    const auto mixture = choose_mixture(request);
    HEADROOM_CHECK(mixture.has_value(), "a plan that does not fit");
    set(mixture->policies);
    time += mixture->seconds;
  }
  plan.activation_policies = std::move(memory.plan.activation_policies);
  memory.plan.activation_policies = plan.activation_policies;
  plan.predicted_peak_bytes = predicted_peak_bytes(memory);
  return time;
}

}  // namespace headroom
