// The gradient's norm, for the vote, the log and clipping.
//
// In a step that accumulates, the norm is that of the accumulated gradient with
// this step's added, before either is changed: hence the sum of two tensors.
// Squares are summed in double over chunks that depend on the size alone, so
// the result is the same for any number of threads.
// Nothing is allocated.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::optim {

// ||a + b||^2; ||a||^2 where b is undefined.
// REQUIRES: flat tensors of one size, both float or both double.
double squared_norm_of_sum(const at::Tensor& a, const at::Tensor& b);

// a += b.
void add_in_place(const at::Tensor& a, const at::Tensor& b);

// What a gradient of `norm` is multiplied by so that it has at most about
// `max_norm`: min(1, max_norm / (norm + 1e-6)), as PyTorch clips.
double clip_coefficient(double norm, double max_norm = 10);

}  // namespace headroom::optim
