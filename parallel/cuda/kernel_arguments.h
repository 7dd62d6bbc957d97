// The operands of kernels as these take them, checked; no CUDA in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "parallel/cuda/kernels/loss_body.h"
#include "parallel/cuda/kernels/render_samples.h"

namespace headroom::cuda {

// The arguments of one launch: as many samples as it takes, from number `first`
// on.
// REQUIRES: first < starts.size().
RenderArguments render_arguments(const at::Tensor& region,
                                 std::span<const int64_t> starts,
                                 const at::Tensor& images, size_t first);

FitArguments fit_arguments(const at::Tensor& fields, const at::Tensor& boxes,
                           const at::Tensor& anchors, const at::Tensor& ciou,
                           const at::Tensor& gradient);

EntropyArguments entropy_arguments(const at::Tensor& logits,
                                   const at::Tensor& targets,
                                   const kernels::EntropyRule& rule,
                                   const at::Tensor& value,
                                   const at::Tensor& derivative);

}  // namespace headroom::cuda
