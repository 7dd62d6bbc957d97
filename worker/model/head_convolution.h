// head_convolution: the detection head's 1x1 convolution where maps have 16
// bits, or are on a device.
//
// The convolution is of the maps' type; of 16 bits its result is float32 from
// there on: the
// bias is added to it unrounded, and loss and decoding are float32. Backward
// rounds the gradient to the maps' type for the convolution alone.
//
// Shapes: x [N, C, H, W] bfloat16 or float16; weight [F, C, 1, 1] and bias [F]
// float32; returns [N, F, H, W] float32 channels-last. `compute_weight`: weight
// in the maps' type, or undefined (worker/model/compute_weight.h).
// Saved for backward: x and the weights.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::model {

at::Tensor head_convolution(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias,
                            const at::Tensor& compute_weight);

}  // namespace headroom::model
