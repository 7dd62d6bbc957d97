// grow: a transposed convolution whose kernel is its stride k: each cell
// becomes k x k cells, by a 1x1 convolution to k * k times the channels.
//
// Shapes: x [N, C_in, H, W] channels-last, N may be 0; weight [C_in, C_out, k,
// k], bias [C_out]; returns [N, C_out, k H, k W] channels-last, of x's type.
// `ready`: weight in that type, or undefined (worker/model/compute_weight.h).
// Saved for backward: x and the weight.
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::model {

at::Tensor transposed_conv(const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& ready);

}  // namespace headroom::model
