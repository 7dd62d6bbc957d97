// The loss's operands as its kernels take them, checked; no CUDA in it.
#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/cuda/kernels/loss_rows.h"

namespace headroom::cuda {

FitArguments fit_arguments(const at::Tensor& fields, const at::Tensor& boxes,
                           const at::Tensor& anchors, const at::Tensor& ciou,
                           const at::Tensor& gradient);

EntropyArguments entropy_arguments(const at::Tensor& logits,
                                   const at::Tensor& targets,
                                   const kernels::EntropyRule& rule,
                                   const at::Tensor& value,
                                   const at::Tensor& derivative);

}  // namespace headroom::cuda
