// The parts of a plan: how it divides batches and layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/plan/batch_split.h"
#include "parallel/plan/plan.h"

namespace headroom::plan {

// A number of cells in an image's smallest map that lets a single sample form a
// batch-norm group.
inline constexpr int64_t kManyCells = 2;

inline BatchCut batch_cut(const Plan& plan, int64_t global_batch_size) {
  return {global_batch_size, plan.layout.data_parallel_size,
          plan.micro_batch_size, plan.batch_norm_rule()};
}

// The number of micro-batches of a rank in a full batch. It does not depend on
// the image size: a full batch leaves no small remainder that would be joined
// to the previous group. REQUIRES: groups_error() of the cut returns no value.
inline int64_t num_micro_batches(const Plan& plan, int64_t global_batch_size) {
  return static_cast<int64_t>(part_of(batch_cut(plan, global_batch_size),
                                      global_batch_size, kManyCells, 0)
                                  .micro_batches.size());
}

// Whether a layer's tensors are offloaded to a file.
inline bool offloads(const Plan& plan) {
  return std::ranges::count(plan.activation_policies,
                            ActivationPolicy::kOffload) > 0;
}

// The layers [begin, end) of a pipeline stage.
struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;
};
inline LayerRange layers_of_stage(const std::vector<int64_t>& stage_begins,
                                  size_t stage, size_t num_layers) {
  return {stage_begins.at(stage), stage + 1 < stage_begins.size()
                                      ? stage_begins[stage + 1]
                                      : static_cast<int64_t>(num_layers)};
}

}  // namespace headroom::plan
