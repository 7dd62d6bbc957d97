// plan_time: how long a step of a run's plan takes, from its request and the
// model's rows (parallel/predict/time_model.h, configs/layers/row_time.h).
//
// Threads: a pure function.
#pragma once

#include <vector>

#include "configs/layers/row_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/time_model.h"

namespace headroom::planner {

// Forward and backward of a row under a policy, in the unit of
// configs/layers/row_time.h.
double row_work(const layers::RowCost& row, plan::ActivationPolicy policy);

// On ranks of one host, each a core of a current server processor.
// REQUIRES: a plan that the planner accepted for `config`.
predict::StepEstimate plan_time(const configs::RunConfig& config,
                                const plan::Plan& plan,
                                const std::vector<layers::RowCost>& rows);

}  // namespace headroom::planner
