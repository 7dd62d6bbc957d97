// HSV jitter: hue, saturation and value each times 1 + U(-1, 1) x gain, on
// 8-bit HSV (hue in 0..179, modulo 180), rounded to the nearest level.
#pragma once

#include <array>
#include <opencv2/core/mat.hpp>

#include "configs/run_config.h"
#include "worker/data/sampling/random.h"

namespace headroom::kernels {
struct HsvFactors;  // worker/kernels/pixel_math.h
}

namespace headroom::augment {

using HsvGains = std::array<double, 3>;

// Always takes three draws.
HsvGains draw_hsv_gains(const configs::Hyperparameters& hyp,
                        sampling::RandomStream& draws);

bool changes_colours(const HsvGains& gains);
kernels::HsvFactors factors_of(const HsvGains& gains);

// In place, RGB uint8; nothing happens at gains of exactly 1.
void jitter_hsv(cv::Mat& pixels, const HsvGains& gains);

}  // namespace headroom::augment
