// multi_scale: the sizes that batches have with --multi-scale, YOLOv5's rule:
// the longer side is any multiple of the model's largest stride in
// [0.5, 1.5] x --img, the other follows, rounded up to such a multiple.
//
// Training draws among them for each step, each as often
// (worker/data/loader/loader_plan.h); plans, fit checks and limits count on the
// largest, so that no step needs more. Time is that of the mean step.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/run_config.h"

namespace headroom::configs {

struct InputSize {
  int64_t height = 0, width = 0;  // pixels
  bool operator==(const InputSize&) const = default;
};

// How many sizes there are, at least one.
// REQUIRES: both sides are multiples of the stride, at least two of it.
int64_t num_input_sizes(InputSize size, int64_t stride);

// Sizes rise with `index`. No side is below two strides.
// REQUIRES: 0 <= index < num_input_sizes(size, stride).
InputSize input_size(InputSize size, int64_t stride, int64_t index);

// The largest of the input sizes.
InputSize largest_input_size(InputSize size, int64_t stride);

// All that the run's batches may have; --img rounded up is the only one without
// --multi-scale.
std::vector<InputSize> input_sizes(const RunConfig& config, int64_t stride);

// The mean area of an image of the run at these sizes.
double mean_pixels(const RunConfig& config, int64_t stride);

// The largest size of the run's training images: --img rounded up, or the
// largest of --multi-scale.
InputSize largest_input_size(const RunConfig& config, int64_t stride);

}  // namespace headroom::configs
