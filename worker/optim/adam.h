// Adam and AdamW over a flat flat buffer, in one pass over memory.
//
//   m = m + (1 - beta1)(g - m)      v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// Kingma and Ba, arXiv:1412.6980, in PyTorch's order of operations. The decay
// of Adam is added to the gradient; AdamW's is decoupled, p *= 1 - lr * decay
// (Loshchilov and Hutter, arXiv:1711.05101). beta2 is 0.999 and eps 1e-8, as
// YOLOv5 has them.
//
// Ownership: borrows everything for the call; allocates nothing.
// Threads: called by one thread; works on at::get_num_threads() of them. The
// result does not depend on their number.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "worker/kernels/element_math.h"
#include "worker/optim/segments.h"

namespace headroom::optim {

struct AdamSettings {
  double beta1 = 0.9;
  int64_t step = 1;  // counts this one
  double clip_coefficient = 1;
  bool decoupled_decay = true;  // AdamW
};

// Elements outside all segments are left as they are.
// REQUIRES: four flat CPU tensors of one size, all float or all double, moments
// 0 before the first step; segments as in sgd_step; step >= 1.
void adam_step(const at::Tensor& parameters, const at::Tensor& gradients,
               const at::Tensor& first_moment, const at::Tensor& second_moment,
               std::span<const Segment> segments,
               const AllGroupSettings& groups, const AdamSettings& settings);

// Of one group, before rounding to the parameters' type.
kernels::AdamCoefficients<double> adam_coefficients(
    const GroupSettings& group, const AdamSettings& settings);

}  // namespace headroom::optim
