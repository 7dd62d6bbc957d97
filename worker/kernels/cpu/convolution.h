// convolution: LibTorch's convolution and its gradients, kept on oneDNN.
//
// LibTorch leaves oneDNN for fp32 1x1 convolutions of stride 1 when the batch
// is below 16 and there is one thread, and is then half as fast. To such a
// convolution samples, rows and columns are all just pixels, so the same memory
// is shown to it as 16 or more flat samples.
//
// On a CPU whose oneDNN has no convolution of bfloat16 or float16, these are
// computed in float32 and rounded once.
//
// A card's library convolves float64 only where a channel's pixels lie
// together: there, what it reads is copied so, and what it makes is copied
// back.
//
// Shapes: x [N, C_in, H, W] and results channels-last; N may be 0. weight
// [C_out, C_in / groups, k, k]. All are of one type.
// Functions are reentrant and use ATen's thread pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::kernels {

struct ConvolutionShape {
  int64_t stride = 1;
  // A map whose rows are split over ranks brings the rows around it along
  // instead of being padded.
  int64_t padding_height = 0;
  int64_t padding_width = 0;
  // Each reads and makes its share of the channels.
  int64_t groups = 1;
};

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight,
                       const ConvolutionShape& shape);

struct ConvolutionGradients {
  at::Tensor dx;
  at::Tensor dweight;
};

// What is not wanted stays undefined.
ConvolutionGradients convolution_gradients(const at::Tensor& dy,
                                           const at::Tensor& x,
                                           const at::Tensor& weight,
                                           const ConvolutionShape& shape,
                                           bool wants_dx, bool wants_dweight);

}  // namespace headroom::kernels
