// LossScale: what the loss is multiplied by before backward, so that gradients
// survive in float16 (Micikevicius et al., arXiv:1710.03740).
//
// It falls to half when a step's gradient is not finite, whose update is then
// skipped, and doubles after 2,000 steps without such a one, as
// torch.amp.GradScaler does. A power of two, so dividing by it is exact.
//
// A plain value; the same on every rank, for it follows from votes.
#pragma once

#include <cmath>
#include <cstdint>

namespace headroom::optim {

struct LossScale {
  static constexpr double kFirst = 65536;
  static constexpr double kSmallest = 1;
  static constexpr int64_t kGrowthInterval = 2000;

  double value = kFirst;
  int64_t good_steps = 0;  // steps since it last changed

  // A gradient that is not finite is none of its doing at the smallest scale.
  bool can_fall() const { return value > kSmallest; }

  void note_finite() {
    if (++good_steps < kGrowthInterval) return;
    // It has to be a float, like the gradients themselves.
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
