// Bytes of weights, gradients, moments and averages between two steps, on this
// rank.
#pragma once

#include <cstdint>

#include "worker/step/training_state.h"

namespace headroom {

inline int64_t resident_bytes(step::TrainingState& state) {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  };
  int64_t all = bytes(state.gradients().own()) + bytes(state.compute_weights());
  for (const step::TrainingState::Buffer& buffer : state.buffers()) {
    all += bytes(*buffer.flat);
  }
  return all;
}

}  // namespace headroom
