// What the memory model (memory_model.h) is asked for a run, from its
// configuration, its plan and the model's layers. The coordinator asks it for
// the plan, every worker for each of its steps.
//
// Batches that are prefetched count as the loader's host memory, not here.
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

// Boxes per image where the labels are not known. More of them in an image
// take about 0.7 KiB per match of 80 classes more.
inline constexpr int64_t kAssumedBoxesPerImage = 100;

std::vector<ModelLayer> memory_layers(
    const std::vector<layers::LayerCost>& layers);

// Images of a validation batch; fewer go through the network at once where
// memory asks for it (Plan::validation_images). 0: nothing is validated.
int64_t validation_batch_size(const configs::RunConfig& config);

// The run's labels, as far as they are known, and its augmentation. Throws
// Error (exit 2) if config.label_counts is of no such form.
LabelBound label_bound(const configs::RunConfig& config);

// Throws as label_bound(). REQUIRES: a plan that the planner accepted for
// `config`.
MemoryRequest memory_request(const configs::RunConfig& config,
                             const plan::Plan& plan,
                             const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::predict
