// The terms of the detection loss, in the order in which they are summed,
// logged and saved, and their names in messages, files and displays.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

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

// The names of the terms of every head, in the order of both lists above.
// Readers of a file take those that the file has.
inline constexpr std::array kAllLossNames = {"box", "obj", "cls", "dfl"};

struct NamedLoss {
  std::string name;
  double value = 0;
  bool operator==(const NamedLoss&) const = default;
};
using NamedLosses = std::vector<NamedLoss>;

NamedLosses named_losses(bool has_anchors, const LossTerms& terms);

// "box 0.081 obj 0.033 cls 0.021", with `between` the terms.
std::string losses_text(const NamedLosses& losses, std::string_view between);

}  // namespace headroom
