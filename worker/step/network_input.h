// network_input: loaded images as the network wants them.
//
// [n, H, W, C] uint8 -> [n, C, H, W] of `scalar_type` in channels-last memory
// (no pixel moves), divided by 255 in float32 also where the run is in float64,
// so that both precisions start from the same numbers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace headroom::step {

// They are copied to where `options` says, as bytes.
at::Tensor network_input(const at::Tensor& images,
                         const at::TensorOptions& options);

}  // namespace headroom::step
