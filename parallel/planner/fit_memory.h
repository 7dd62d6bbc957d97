// Plans within --memory-limit: the first one, in order of preference, whose
// predicted bytes stay within it on every rank (fit_memory), and the layout
// where --layout leaves it open (choose_layout).
//
// What is given stays as given. Of what is not, the preferred is tried first:
//
//   batch-norm groups   as without a limit; smaller ones only when nothing else
//                       fits, for they change the mathematics, and it is said
//   ZeRO                none, then 1, 2, 3, where there is a data axis; a later
//                       one where it saves more than 5 % of the time by the
//                       model (plan_time)
//   activations         keep, then recompute, of which as little as possible
//                       (activation_mixture.h), then offload of every layer
//   micro-batch         a rank's whole share, then the largest multiple of the
//                       group that fits; half of that, and so on, where layers
//                       then give way so much less that it saves 2 % of time
//
// If nothing fits, the refusal (exit 3) names the bytes and the limit; what
// would fit is remedies.h's to find.
#pragma once

#include <functional>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {

// The plan of a request in which everything is given, without predicted bytes,
// or its refusal.
using Planner =
    std::function<PlanDecision(const configs::RunConfig&, int world_size,
                               const std::vector<layers::LayerCost>&)>;

// REQUIRES: config.memory_limit > 0, layers.
PlanDecision fit_memory(const configs::RunConfig& config, int world_size,
                        const std::vector<layers::LayerCost>& layers,
                        const Planner& planner, PlanAnswer answer);

// Whether fit_memory() finds a plan: any that fits, without its bytes.
// REQUIRES: as there.
std::optional<PlanDecision> any_fit(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const Planner& planner);

// The plan of a request with a layout that fits, or its refusal.
using FitLayout = std::function<PlanDecision(const configs::RunConfig&)>;

// Every layout of all workers gets the plan that fits best. Of those that fit
// the fastest is taken by the model (plan_time); of equally fast ones, which
// differ by less than 5 %, the simplest: data before pipeline before spatial. A
// layout that only fits with smaller batch-norm groups, which changes the
// mathematics, is taken only where none fits without. None if no layout fits.
// REQUIRES: no config.layout, layers.
std::optional<PlanDecision> choose_layout(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const FitLayout& fit);

}  // namespace headroom::planner
