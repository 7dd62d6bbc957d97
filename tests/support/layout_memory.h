// layout_memory: the bytes of ranks that train under a layout. The count of
// each rank is exact, although the ranks are threads of one process.
//
// The run is that of `headroom train --synthetic-input`: the planner's plan, 80
// classes, 8 boxes per image.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom {

struct RankMemory {
  int64_t state = 0;  // between steps: weights, gradients, moments, averages
  int64_t rest = 0;   // between steps: all tensors, including the input batch
  int64_t peak = 0;   // during the steps
  // The bytes that forward and backward add.
  int64_t activations() const { return peak - rest; }
};

struct LayoutMemory {
  plan::Plan plan;
  std::vector<RankMemory> ranks;
  std::vector<double> loss;  // per step

  // The largest bytes over the ranks.
  int64_t peak() const;
  int64_t activations() const;
  int64_t state() const;
};

// Trains `steps` steps with the model, layout, batch and sizes of `config`.
LayoutMemory measure_memory(configs::RunConfig config, int steps);

}  // namespace headroom
