// Plans within --memory-limit. fit_memory finds the first plan, in order of
// preference, whose predicted bytes fit on every rank; choose_layout finds the
// layout if --layout is not given.
//
// Flags that are given are kept. For the others, preferred values come first:
//
//   batch-norm groups   as without a limit; smaller ones only if nothing else
//                       fits, with a warning: they change the mathematics
//   ZeRO                none, then 1, 2, 3 if there is a data axis; a higher
//                       stage also if it saves more than 5 % of the predicted
//                       time (plan_time)
//   activations         keep, then as little recompute as possible
//                       (activation_mixture.h), then offload of every layer
//   micro-batch         a rank's whole share, then the largest multiple of the
//                       group that fits; half of that, and so on, if less
//                       recompute then saves 2 % of the time
//
// If nothing fits, the refusal (exit 3) names the bytes and the limit;
// remedies.h finds changes that would fit.
#pragma once

#include <functional>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {

// Returns the plan of a complete request, without predicted bytes, or the
// refusal.
using Planner =
    std::function<PlanDecision(const configs::RunConfig&, int world_size,
                               const std::vector<layers::LayerCost>&)>;

// REQUIRES: config.memory_limit > 0, layers.
PlanDecision fit_memory(const configs::RunConfig& config, int world_size,
                        const std::vector<layers::LayerCost>& layers,
                        const Planner& planner, PlanAnswer answer);

// Returns any plan that fits, without bytes, if fit_memory() would find one.
// REQUIRES: as fit_memory().
std::optional<PlanDecision> any_fit(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const Planner& planner);

// Returns the plan of a request with a given layout, or the refusal.
using FitLayout = std::function<PlanDecision(const configs::RunConfig&)>;

// Finds the best plan that fits for every layout of all workers and returns the
// fastest (plan_time). Among plans within 5 % it returns the simplest: data
// before pipeline before spatial. Smaller batch-norm groups change the
// mathematics, so a layout that needs them is chosen only if no other fits.
// Returns nothing if no layout fits. REQUIRES: no config.layout, layers.
std::optional<PlanDecision> choose_layout(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const FitLayout& fit);

}  // namespace headroom::planner
