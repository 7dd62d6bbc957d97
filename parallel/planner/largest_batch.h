// What --batch -1 means: the largest global batch whose shares go through the
// network in one piece within --memory-limit.
//
// Images that follow each other in micro-batches bound nothing, so a share is
// one micro-batch, and layers keep what --activations says, or everything. The
// batch has no more images than the data set, where that is known
// (config.label_counts).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"

namespace headroom::planner {

struct BatchChoice {
  int64_t global_batch_size = 0;
  int64_t bytes = 0;   // predicted, of the fullest rank
  std::string remark;  // why it is no larger despite room; or ""
};

// Throws Error (exit 3) with the bytes if the least share is too much, (exit
// 2) if the data set has not even that many, and what the planner refuses.
// REQUIRES: config.memory_limit > 0, layers; config.global_batch_size is
// ignored.
BatchChoice largest_batch(const configs::RunConfig& config, int world_size,
                          const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::planner
