// The plan in a run directory, for a run that goes on as it was. The plan of a
// request is a pure function of it, but a run that ran out of memory may have
// gone on under another (replan.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/plan.h"

namespace headroom::planner {

plan::BatchCut batch_cut(const configs::RunConfig& config,
                         const plan::Plan& plan);

// Why a plan that was written down is not one for this run, with both numbers;
// "" if it is. Whoever reads a plan from a file asks before using it: the
// coordinator of a resumed run, and the worker that runs alone. `num_layers`
// are the model's, 0 where they are not known.
std::string plan_match_error(const configs::RunConfig& config,
                             const plan::Plan& plan, int world_size,
                             size_t num_layers);

struct SavedPlan {
  std::optional<plan::Plan> plan;
  std::string plan_error;  // why it is none for this request; "" without a file
};

// How plan.json of the run directory says that batches are cut into batch-norm
// groups, which a run that goes on keeps; nothing without the file. Throws
// Error if the file is not a plan.
std::optional<plan::BatchNormRule> saved_batch_norm_rule(
    const std::string& run_directory);

// plan.json of the run directory, if it is still one for `config` and so many
// ranks. Throws Error if the file is not a plan.
SavedPlan read_saved_plan(const std::string& run_directory,
                          const configs::RunConfig& config, int world_size,
                          const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::planner
