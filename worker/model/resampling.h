// resampling: the operations of a layer between its convolutions.
//
// Maps are always channels-last: pooling, upsampling and concatenation run on
// the [N, H, W, C] view, where channels are contiguous.
//
// All results are cheap to compute again, and reported to StepContext::derived.
//
// If each rank holds some rows of the image, pooling fetches the rows it needs
// around them (StepContext::halo). All other operations are local, because
// parts of an image are whole blocks of the model's largest stride.
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

// Nearest-neighbour upsampling by a factor of 2.
at::Tensor upsampled_map(const at::Tensor& x, const StepContext& context);

// 2 x 2 cells become one: [N, 4 C, H / 2, W / 2], channels as in LayerProgram.
at::Tensor folded_map(const at::Tensor& x, const StepContext& context);

at::Tensor sliced_map(const at::Tensor& x, int64_t first_channel,
                      int64_t channels, const StepContext& context);

// Shuffles channels over `groups` groups, as LayerProgram defines.
at::Tensor shuffled_map(const at::Tensor& x, int64_t groups,
                        const StepContext& context);

// x, p1(x), p2(p1(x)), … concatenated along the channels, where each p is a max
// pooling with an odd window and stride 1.
at::Tensor chained_pools(const at::Tensor& x,
                         const std::vector<int64_t>& windows,
                         const StepContext& context);

}  // namespace headroom::model
