// cell_sums: sums over the cells of an image, per sample and channel, in double
// and in the order of the cells.
//
// Shapes: a, b [N, C, H, W]; copied to channels-last if channels are not
// adjacent in memory. Returns [N, C] in float64: the sums of a, or of a times
// b. On a device it uses LibTorch's sum over float64 copies of a few samples at
// a time (parallel/base/device_scratch.h). Samples are summed in parallel on
// LibTorch's threads.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::kernels {

at::Tensor cell_sums(const at::Tensor& a, const at::Tensor& b = {});

}  // namespace headroom::kernels
