// SGD with Nesterov momentum over a flat flat buffer, in one pass over memory.
//
// Clipping, decay, momentum and update are one loop: parameter, gradient and
// momentum are read once and nothing is allocated, because after the vote of a
// step nothing may fail. The arithmetic is PyTorch's SGD(nesterov=True) with
// dampening 0 (Sutskever et al. 2013 in that formulation).
//
// Ownership: borrows everything for the call.
// Threads: called by one thread; works on at::get_num_threads() of them. The
// result does not depend on their number.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "worker/optim/segments.h"

namespace headroom::optim {

// Elements outside all segments (padding, frozen layers) are left as they are.
// `first_step`: the momentum buffer takes the gradient instead of averaging it
// in; what it held before is not read.
// REQUIRES: three flat CPU tensors of one size, all float or all double;
// segments in ascending order without overlap, inside the tensors.
void sgd_step(const at::Tensor& parameters, const at::Tensor& gradients,
              const at::Tensor& momentum_buffer,
              std::span<const Segment> segments, const AllGroupSettings& groups,
              double momentum, double clip_coefficient, bool first_step);

}  // namespace headroom::optim
