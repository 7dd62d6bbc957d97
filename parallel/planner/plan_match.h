// plan_match: is a plan that was written down one for this run? Who reads a
// plan from a file asks before using it: the coordinator of a resumed run, and
// the worker that runs alone.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>

#include "configs/run_config.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/plan.h"

namespace headroom::planner {

plan::BatchCut batch_cut(const configs::RunConfig& config,
                         const plan::Plan& plan);

// With both numbers; "" if it is one. `num_layers` are the model's; 0: not
// known.
std::string plan_match_error(const configs::RunConfig& config,
                             const plan::Plan& plan, int world_size,
                             size_t num_layers);

}  // namespace headroom::planner
