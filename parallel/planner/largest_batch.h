// Answers --batch -1: the largest global batch within --memory-limit for which
// each rank's share is one micro-batch.
//
// Splitting a share into micro-batches would allow any batch size, so each
// share must be one micro-batch. Layers use the policy of --activations, or
// keep everything. If the data set's size is known (config.label_counts), the
// batch is no larger than that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"

namespace headroom::planner {

struct BatchChoice {
  int64_t global_batch_size = 0;
  int64_t bytes = 0;   // predicted bytes of the fullest rank
  std::string remark;  // why the batch is not larger if memory is left; else ""
};

// Throws Error: exit 3 with the bytes if even the smallest share does not fit,
// exit 2 if the data set has fewer images than there are data ranks, or the
// planner's refusal. REQUIRES: config.memory_limit > 0, layers;
// config.global_batch_size is ignored.
BatchChoice largest_batch(const configs::RunConfig& config, int world_size,
                          const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::planner
