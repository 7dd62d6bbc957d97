// plan_time: how long a step of a run's plan takes, from its request and the
// model's rows (parallel/plan/time_model.h, configs/row_time.h).
//
// Threads: a pure function.
#pragma once

#include <vector>

#include "configs/row_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/time_model.h"

namespace headroom {

// Forward and backward of a row under a policy, in the unit of
// configs/row_time.h.
double row_work(const RowCost& row, ActivationPolicy policy);

// On ranks of one host, each a core of a current server processor.
// REQUIRES: a plan that the planner accepted for `config`.
StepEstimate plan_time(const RunConfig& config, const Plan& plan,
                       const std::vector<RowCost>& rows);

}  // namespace headroom
