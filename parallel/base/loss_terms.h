// The terms of the detection loss, in the order in which they are summed,
// logged and saved.
#pragma once

#include <array>
#include <cstddef>

namespace headroom {

inline constexpr size_t kNumLossTerms = 3;
using LossTerms = std::array<double, kNumLossTerms>;

// A head without anchors has no objectness, but a loss of its distances
// (distribution focal loss).
constexpr std::array<const char*, kNumLossTerms> loss_term_names(
    bool has_anchors) {
  if (has_anchors) return {"box", "obj", "cls"};
  return {"box", "cls", "dfl"};
}

}  // namespace headroom
