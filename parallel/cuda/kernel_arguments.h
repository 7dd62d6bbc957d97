// The operands of kernels as these take them, checked; no CUDA in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "parallel/cuda/kernels/loss_body.h"
#include "parallel/cuda/kernels/render_samples.h"
#include "worker/kernels/loss_kernels.h"

namespace headroom::cuda {

// The arguments of one launch: as many samples as it takes, from number `first`
// on.
// REQUIRES: first < starts.size().
RenderArguments render_arguments(const at::Tensor& region,
                                 std::span<const int64_t> starts,
                                 const at::Tensor& images, size_t first);

// The arguments of the loss kernel: those of backward where the call has
// `by_total`, else those of forward.
LossArguments loss_arguments(const kernels::LossCall& call);

}  // namespace headroom::cuda
