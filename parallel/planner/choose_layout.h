// choose_layout: how the workers are laid out where --layout leaves it open and
// --memory-limit bounds what each may take.
//
// Every layout of all workers gets the plan that fits best (fit_memory.h). Of
// those that fit the fastest is taken by the model of plan_time.h; of equally
// fast ones, which differ by less than 5 %, the simplest: data before pipeline
// before spatial. A layout that only fits with smaller batch-norm groups, which
// changes the mathematics, is taken only where none fits without.
#pragma once

#include <functional>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {

// The plan of a request with a layout that fits, or its refusal.
using FitLayout = std::function<PlanDecision(const configs::RunConfig&)>;

// None if no layout fits. REQUIRES: no config.layout, layers.
std::optional<PlanDecision> choose_layout(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const FitLayout& fit);

}  // namespace headroom::planner
