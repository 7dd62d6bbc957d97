// LossScale: the factor of the loss before backward, so that small gradients do
// not underflow in float16 (Micikevicius et al., arXiv:1710.03740).
//
// Like torch.amp.GradScaler: halved when a step's gradient is not finite (that
// step's update is skipped), and doubled after 2,000 steps in a row with finite
// gradients. It is a power of two, so dividing by it is exact.
//
// A plain value. The scale is equal on all ranks, because it follows from the
// votes.
#pragma once

#include <cmath>
#include <cstdint>

namespace headroom::optim {

struct LossScale {
  static constexpr double kFirst = 65536;
  static constexpr double kSmallest = 1;
  static constexpr int64_t kGrowthInterval = 2000;

  double value = kFirst;
  int64_t good_steps = 0;  // finite steps since the last overflow or growth

  // False at the smallest scale: an overflow there has another cause.
  bool can_fall() const { return value > kSmallest; }

  void note_finite() {
    if (++good_steps < kGrowthInterval) return;
    // The scale must be a finite float, like the gradients.
    if (std::isfinite(static_cast<float>(2 * value))) value *= 2;
    good_steps = 0;
  }
  // REQUIRES: can_fall().
  void note_overflow() {
    value /= 2;
    good_steps = 0;
  }

  bool operator==(const LossScale&) const = default;
};

}  // namespace headroom::optim
