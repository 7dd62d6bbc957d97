// convolution: LibTorch's convolution and its gradients, in fast variants.
//
// With a single thread and a batch below 16, LibTorch does not use oneDNN for
// fp32 1x1 convolutions of stride 1, and is half as fast. For such a
// convolution the sample, row and column of a pixel do not matter, so the same
// memory is passed as 16 or more flat samples.
//
// On a CPU whose oneDNN cannot convolve bfloat16 or float16, these are computed
// in float32 and rounded once.
//
// CUDA's library convolves float64 only in plain (NCHW) layout, so inputs are
// copied to it, and results are copied back.
//
// Shapes: x [N, C_in, H, W] and results channels-last; N may be 0. weight
// [C_out, C_in / groups, k, k]. All tensors have one type. Functions are
// reentrant and use ATen's thread pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::kernels {

struct ConvolutionShape {
  int64_t stride = 1;
  // 0 if the map's rows are split over ranks: then the map includes
  // neighbouring rows instead of padding.
  int64_t padding_height = 0;
  int64_t padding_width = 0;
  // Each group reads and computes its own share of the channels.
  int64_t groups = 1;
};

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight,
                       const ConvolutionShape& shape);

struct ConvolutionGradients {
  at::Tensor dx;
  at::Tensor dweight;
};

// A gradient that is not wanted stays undefined.
ConvolutionGradients convolution_gradients(const at::Tensor& dy,
                                           const at::Tensor& x,
                                           const at::Tensor& weight,
                                           const ConvolutionShape& shape,
                                           bool wants_dx, bool wants_dweight);

}  // namespace headroom::kernels
