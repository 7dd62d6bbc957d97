// plan_time: how long a step of a run's plan takes, from its request and the
// model's layers (parallel/predict/time_model.h, configs/layers/layer_time.h).
//
// Threads: a pure function.
#pragma once

#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/time_model.h"

namespace headroom::planner {

// Forward and backward of a layer under a policy, in the unit of
// configs/layers/layer_time.h.
double layer_work(const layers::LayerCost& layer,
                  plan::ActivationPolicy policy);

// On ranks of one host, each a core of a current server processor.
// REQUIRES: a plan that the planner accepted for `config`.
predict::StepEstimate plan_time(const configs::RunConfig& config,
                                const plan::Plan& plan,
                                const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::planner
