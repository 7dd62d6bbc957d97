// Changes of pixels that move nothing: mean and median of a neighbourhood,
// colour taken away, brightness spread (CLAHE), in this order.
//
// Only those of OpenCV's operators are used whose 8-bit results are the same on
// every processor, so that a sample has the same bytes everywhere.
#pragma once

#include <array>
#include <opencv2/core/mat.hpp>
#include <vector>

#include "configs/run_config.h"
#include "worker/data/labels/pixel_box.h"
#include "worker/data/sampling/random.h"

namespace headroom::kernels {
struct HsvFactors;  // worker/kernels/pixel_math.h
}

namespace headroom::augment {

struct PixelChanges {
  int blur = 0;  // side of the neighbourhood: 3, 5 or 7; 0: none
  int median_blur = 0;
  bool gray = false;
  double clahe = 0;  // clip limit, 1 to 4; 0: none

  // Does a row depend on others?
  bool needs_all_rows() const {
    return blur > 0 || median_blur > 0 || clahe > 0;
  }
  bool operator==(const PixelChanges&) const = default;
};

// A change of probability 0 takes no draw, so that the sample's other draws
// stay what they are without it.
PixelChanges draw_pixel_changes(const configs::Hyperparameters& hyp,
                                sampling::RandomStream& draws);

// Changes pixels of 8 or 16 bits in place; without colours, and of 16 bits,
// only by mean and median. REQUIRES: the whole sample where needs_all_rows();
// colours are RGB.
void change_pixels(cv::Mat& pixels, const PixelChanges& changes,
                   bool has_colours = true);

// Move the boxes of a picture that is mirrored.
void flip_left_right(std::vector<labels::NormalizedBox>& boxes);
void flip_up_down(std::vector<labels::NormalizedBox>& boxes);

// HSV jitter: hue, saturation and value each times 1 + U(-1, 1) x gain, on
// 8-bit HSV (hue in 0..179, modulo 180), rounded to the nearest level.
using HsvGains = std::array<double, 3>;

// Always takes three draws.
HsvGains draw_hsv_gains(const configs::Hyperparameters& hyp,
                        sampling::RandomStream& draws);

bool changes_colours(const HsvGains& gains);
kernels::HsvFactors factors_of(const HsvGains& gains);

// Works in place on RGB uint8; gains of exactly 1 change nothing.
void jitter_hsv(cv::Mat& pixels, const HsvGains& gains);

// Mixup: two pictures blended by a ratio from Beta(32, 32); boxes of both stay
// (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup", 2018). The ratio takes
// 64 draws.
double draw_mixup_ratio(sampling::RandomStream& draws);

// The first becomes ratio x first + (1 - ratio) x second, fractions cut.
// REQUIRES: pictures of one size and kind, of 8 or 16 bits.
void mix_in(cv::Mat& first, const cv::Mat& second, double ratio);

}  // namespace headroom::augment
