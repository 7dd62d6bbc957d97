// Mixup: two pictures blended by a ratio from Beta(32, 32); boxes of both stay
// (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup", 2018).
#pragma once

#include <opencv2/core/mat.hpp>

#include "worker/data/sampling/random.h"

namespace headroom::augment {

// Takes 64 draws.
double draw_mixup_ratio(sampling::RandomStream& draws);

// The first becomes ratio x first + (1 - ratio) x second, fractions cut.
// REQUIRES: pictures of one size and kind, uint8.
void mix_in(cv::Mat& first, const cv::Mat& second, double ratio);

}  // namespace headroom::augment
