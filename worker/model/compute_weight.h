// compute_weight: the weight that maps of some type are convolved with.
//
// Weights that learn are float32 or float64. Maps of 16 bits are convolved with
// a copy of their own type: one that lies ready (NamedTensor::compute), or
// where there is none, one made for the moment.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::model {

// `ready`: the copy; undefined: none. Not differentiable.
inline at::Tensor compute_weight(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& ready) {
  if (x.scalar_type() == weight.scalar_type()) return weight;
  if (ready.defined() && ready.scalar_type() == x.scalar_type()) return ready;
  return weight.detach().to(x.scalar_type());
}

}  // namespace headroom::model
