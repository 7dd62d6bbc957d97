// The operands of rendering as its kernel takes them, checked; no CUDA in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "parallel/cuda/kernels/render_samples.h"

namespace headroom::cuda {

// Of as many samples as one launch takes, from number `first` on.
// REQUIRES: first < starts.size().
RenderArguments render_arguments(const at::Tensor& region,
                                 std::span<const int64_t> starts,
                                 const at::Tensor& images, size_t first);

}  // namespace headroom::cuda
