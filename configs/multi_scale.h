// multi_scale: the sizes of batches under --multi-scale, by YOLOv5's rule: the
// longer side is any multiple of the model's largest stride in [0.5, 1.5] x
// --img, and the other side is scaled by the same factor and rounded up to such
// a multiple.
//
// Training draws a size for each step, with equal probability for all sizes
// (worker/data/loader/loader_plan.h). Plans, fit checks and limits use the
// largest size, so no step needs more memory. Predicted time is the mean over
// all sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/run_config.h"

namespace headroom::configs {

struct InputSize {
  int64_t height = 0, width = 0;  // pixels
  bool operator==(const InputSize&) const = default;
};

// The number of sizes, at least one. REQUIRES: both sides are multiples of the
// stride, and at least two strides.
int64_t num_input_sizes(InputSize size, int64_t stride);

// Sizes increase with `index`. No side is below two strides. REQUIRES: 0 <=
// index < num_input_sizes(size, stride).
InputSize input_size(InputSize size, int64_t stride, int64_t index);

InputSize largest_input_size(InputSize size, int64_t stride);

// All sizes of the run's batches; without --multi-scale only --img rounded up.
std::vector<InputSize> input_sizes(const RunConfig& config, int64_t stride);

// The mean area of an image over input_sizes().
double mean_pixels(const RunConfig& config, int64_t stride);

// The largest size of the run's training images: --img rounded up, or the
// largest of --multi-scale.
InputSize largest_input_size(const RunConfig& config, int64_t stride);

}  // namespace headroom::configs
