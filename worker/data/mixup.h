// Mixup: two pictures blended by a ratio from Beta(32, 32), boxes of both kept
// (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup", 2018).
#pragma once

#include "worker/data/pixel_box.h"
#include "worker/data/random.h"

namespace headroom {

// Takes 64 draws.
double draw_mixup_ratio(RandomStream& draws);

// ratio x first + (1 - ratio) x second, fractions cut.
// REQUIRES: pictures of one size.
BoxedImage mix(const BoxedImage& first, const BoxedImage& second, double ratio);

}  // namespace headroom
