// Builds the request to the memory model (memory_model.h) from a run's
// configuration, plan and model layers. The coordinator uses the request to
// plan; every worker uses it to check each of its steps.
//
// Prefetched batches are counted in the loader's host memory, not here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/label_bound.h"
#include "parallel/predict/memory_model.h"

namespace headroom::predict {

// The assumed number of boxes per image if the labels are unknown. Each further
// match needs about 0.7 KiB with 80 classes.
inline constexpr int64_t kAssumedBoxesPerImage = 100;

// Images of a validation batch; with little memory fewer are evaluated at once
// (Plan::validation_images). 0 if the run has no validation.
int64_t validation_batch_size(const configs::RunConfig& config);

// The run's known label statistics and its augmentation. Throws Error (exit 2)
// if config.label_counts cannot be parsed.
LabelBound label_bound(const configs::RunConfig& config);

// Throws as label_bound(). REQUIRES: a plan that the planner accepted for
// `config`.
MemoryRequest memory_request(const configs::RunConfig& config,
                             const plan::Plan& plan,
                             const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::predict
