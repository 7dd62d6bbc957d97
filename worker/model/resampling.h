// resampling: what a layer does between its convolutions.
//
// Maps are channels-last throughout: pooling, upsampling and concatenation run
// on the [N, H, W, C] view, where channels are contiguous.
//
// Everything here is cheap to make again from what it was made from, and says
// so (StepContext::derived).
//
// Where ranks hold some rows of the image each, pooling fetches the rows it
// needs around theirs (StepContext::halo); the rest is local: parts of an image
// are whole blocks of the model's largest stride.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/model/step_context.h"

namespace headroom::model {

at::Tensor added_maps(const at::Tensor& a, const at::Tensor& b,
                      const StepContext& context);

at::Tensor concatenated_maps(const std::vector<at::Tensor>& maps,
                             const StepContext& context);

// Nearest neighbour, by 2.
at::Tensor upsampled_map(const at::Tensor& x, const StepContext& context);

// Four neighbouring cells to one: [N, 4 C, H / 2, W / 2], as LayerProgram says.
at::Tensor folded_map(const at::Tensor& x, const StepContext& context);

at::Tensor sliced_map(const at::Tensor& x, int64_t first_channel,
                      int64_t channels, const StepContext& context);

// Channels of `groups` groups in turn, as LayerProgram says.
at::Tensor shuffled_map(const at::Tensor& x, int64_t groups,
                        const StepContext& context);

// x, p1(x), p2(p1(x)), … along the channels; p max-pools of odd windows and
// stride 1.
at::Tensor chained_pools(const at::Tensor& x,
                         const std::vector<int64_t>& windows,
                         const StepContext& context);

}  // namespace headroom::model
