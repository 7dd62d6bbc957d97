#include "parallel/planner/mix_activations.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/planner/activation_mixture.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/stage_cut.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::planner {
namespace {

// Other micro-batches in flight have what they keep beside the one at work.
MixtureLayer mixture_layer(const predict::LayerCosts& bytes,
                           int64_t num_in_flight,
                           const layers::LayerCost& layer) {
  MixtureLayer result;
  for (const plan::ActivationPolicy policy :
       {plan::ActivationPolicy::kKeep, plan::ActivationPolicy::kLean,
        plan::ActivationPolicy::kRecompute}) {
    const predict::LayerCost& cost = bytes[static_cast<size_t>(policy)];
    MixtureLayer::Choice choice;
    choice.policy = policy;
    choice.seconds = layer_work(layer, policy);
    choice.kept_bytes = num_in_flight * cost.kept_bytes;
    choice.busy_bytes = (num_in_flight - 1) * cost.kept_bytes + cost.peak_bytes;
    result.choices.push_back(choice);
  }
  return result;
}

}  // namespace

double mix_activations(const configs::RunConfig& config,
                       const std::vector<layers::LayerCost>& layers,
                       plan::Plan& plan) {
  HEADROOM_CHECK(plan.activation_policies.size() == layers.size(),
                 "a plan that does not say what layers keep");
  predict::MemoryRequest whole = predict::memory_request(config, plan, layers);
  const std::vector<StageShare> stages = stage_shares(plan, layers);
  double time = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto begin = static_cast<size_t>(stages[stage].begin);
    const auto end = static_cast<size_t>(stages[stage].end);
    const auto set = [&](const ActivationPolicies& policies) {
      std::ranges::copy(policies, whole.plan.activation_policies.begin() +
                                      static_cast<std::ptrdiff_t>(begin));
    };
    plan::MeshCoordinates rank;
    rank.pipeline_stage = static_cast<int>(stage);
    const predict::RankMicroBatch part = predict::rank_micro_batch(whole, rank);
    const std::vector<predict::LayerCosts> bytes =
        predict::layer_costs(part.stage, part.extents, part.loss);
    MixtureRequest request;
    request.limit_bytes = config.memory_limit;
    for (size_t layer = begin; layer < end; ++layer) {
      request.layers.push_back(mixture_layer(
          bytes[layer - begin], part.num_in_flight, layers[layer]));
    }
    request.peak_bytes = [&](const ActivationPolicies& policies) {
      set(policies);
      return predict::estimate_rank_memory(whole, rank).total();
    };
    const auto mixture = choose_mixture(request);
    HEADROOM_CHECK(mixture.has_value(), "a plan that does not fit");
    set(mixture->policies);
    time += mixture->seconds;
  }
  plan.activation_policies = std::move(whole.plan.activation_policies);
  predict_memory(config, layers, plan);
  return time;
}

}  // namespace headroom::planner
