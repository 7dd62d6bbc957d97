// cell_sums: sums over the cells of an image, per sample and channel, in
// double, in the order of the cells.
//
// Shapes: a, b [N, C, H, W], channels neighbouring in memory or it is made so;
// returns [N, C] of float64, of a's cells or of a times b.
// On a device by LibTorch's sum, over copies in float64 of some samples at a
// time (parallel/base/device_scratch.h).
// Samples are summed in parallel, on LibTorch's threads.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::kernels {

at::Tensor cell_sums(const at::Tensor& a, const at::Tensor& b = {});

}  // namespace headroom::kernels
