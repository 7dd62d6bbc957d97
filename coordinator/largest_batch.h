// largest_batch: what --batch -1 means: the largest global batch whose shares
// go through the network in one piece within --memory-limit.
//
// Images that follow each other in micro-batches bound nothing, so a share is
// one micro-batch, and rows keep what --activations says, or everything. Shares
// are multiples of 16, so that batch-norm groups have their usual size; where
// 16 images are too many, 8, 4, 2 or 1. The batch has no more images than the
// data set, where that is known (config.label_counts).
//
// Threads: a pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/row_cost.h"
#include "configs/run_config.h"

namespace headroom {

struct BatchChoice {
  int64_t global_batch_size = 0;
  int64_t bytes = 0;   // predicted, of the fullest rank
  std::string remark;  // why it is no larger although there is room; or ""
};

// Throws Error (exit 3) with the bytes if one image a rank is too much, (exit
// 2) if the data set has not even that many, and what the planner refuses.
// REQUIRES: config.memory_limit > 0, rows; config.global_batch_size is ignored.
BatchChoice largest_batch(const RunConfig& config, int world_size,
                          const std::vector<RowCost>& rows);

}  // namespace headroom
