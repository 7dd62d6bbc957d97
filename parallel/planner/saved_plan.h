// Reads the plan in a run directory, to resume the run with it. A request alone
// determines its plan, but a run that ran out of memory may have continued with
// another plan (replan.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/batch_norm_groups.h"
#include "parallel/plan/plan.h"

namespace headroom::planner {

// Why a stored plan does not fit this run, with the numbers that differ; "" if
// it fits. Called before a plan from a file is used: by the coordinator of a
// resumed run and by a standalone worker. `num_layers`: the model's number of
// layers, or 0 if unknown.
std::string plan_match_error(const configs::RunConfig& config,
                             const plan::Plan& plan, int world_size,
                             size_t num_layers);

struct SavedPlan {
  std::optional<plan::Plan> plan;
  std::string plan_error;  // why the file's plan does not fit; else ""
};

// The batch-norm groups of the run directory's plan.json, which a resumed run
// keeps; no value if the file does not exist. Throws Error if the file is not a
// plan.
std::optional<plan::BatchNormRule> saved_batch_norm_rule(
    const std::string& run_directory);

// The plan in the run directory's plan.json if it still fits `config` and
// `world_size`. Throws Error if the file is not a plan.
SavedPlan read_saved_plan(const std::string& run_directory,
                          const configs::RunConfig& config, int world_size,
                          const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::planner
