// The buffers of a training state between two steps, on this rank: weights,
// gradients, moments and averages.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

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

// Copies on the CPU of all buffers that a commit changes.
inline std::vector<at::Tensor> copies_of(step::TrainingState& state) {
  std::vector<at::Tensor> copies;
  for (const step::TrainingState::Buffer& buffer : state.buffers()) {
    copies.push_back(buffer.flat->detach().to(at::kCPU, at::kDouble).clone());
  }
  return copies;
}

// Expects that all buffers are equal bit for bit.
inline void expect_same_state(const std::vector<at::Tensor>& found,
                              const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].equal(expected[i])) << "buffer " << i;
  }
}

}  // namespace headroom
