// initialisation: the values of a fresh model.
//
// Each tensor is drawn from a counter-based generator (Philox 4x32-10) keyed by
// the run's seed and the tensor's name, so that its values depend neither on
// the order of construction, nor on which rank builds which layers, nor on the
// precision: numbers are float32 values in every precision.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace headroom::model {

// What a tensor's values follow from.
struct InitialisationKey {
  uint64_t seed = 0;
  std::string name;  // "model.0.conv.weight"
};

// Uniform in [-bound, bound), row-major.
at::Tensor uniform_values(const InitialisationKey& key, at::IntArrayRef sizes,
                          double bound, at::ScalarType scalar_type);

// Half-width of Kaiming-uniform values with a = sqrt(5): sqrt(6 / ((1 + a^2) *
// fan_in)), for weights and biases alike. He et al., arXiv:1502.01852.
double kaiming_bound(int64_t fan_in);

}  // namespace headroom::model
