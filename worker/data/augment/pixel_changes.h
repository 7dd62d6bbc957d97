// Changes of pixel values that do not move objects: mean and median of a
// neighbourhood, conversion to gray, and equalised brightness (CLAHE), in this
// order.
//
// Uses only OpenCV operators whose 8-bit results are the same on every
// processor, so that a sample has the same bytes everywhere.
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
  int blur = 0;  // side of the neighbourhood: 3, 5 or 7; 0 for no blur
  int median_blur = 0;
  bool gray = false;
  double clahe = 0;  // clip limit, 1 to 4; 0 for no CLAHE

  // Whether a row depends on other rows.
  bool needs_all_rows() const {
    return blur > 0 || median_blur > 0 || clahe > 0;
  }
  bool operator==(const PixelChanges&) const = default;
};

// A change with probability 0 takes no draw, so that switching it off leaves
// the sample's other draws unchanged.
PixelChanges draw_pixel_changes(const configs::Hyperparameters& hyp,
                                sampling::RandomStream& draws);

// Changes pixels of 8 or 16 bits in place. Pictures without colours or with 16
// bits get only mean and median. REQUIRES: the whole sample if
// needs_all_rows(); colours are RGB.
void change_pixels(cv::Mat& pixels, const PixelChanges& changes,
                   bool has_colours = true);

// Flip the boxes of a picture that is flipped.
void flip_left_right(std::vector<labels::NormalizedBox>& boxes);
void flip_up_down(std::vector<labels::NormalizedBox>& boxes);

// HSV jitter: multiplies hue, saturation and value each by 1 + U(-1, 1) x gain,
// on 8-bit HSV (hue in 0..179, modulo 180), rounded down. With hyp.add_hue, 180
// x U(-1, 1) x gain is added to the hue instead.
struct HsvGains {
  double hue = 1, saturation = 1, value = 1;
  double added_hue = 0;
  bool operator==(const HsvGains&) const = default;
};

// Always takes three draws.
HsvGains draw_hsv_gains(const configs::Hyperparameters& hyp,
                        sampling::RandomStream& draws);

bool changes_colours(const HsvGains& gains);
kernels::HsvFactors factors_of(const HsvGains& gains);

// Changes 8-bit RGB in place. Gains of exactly 1, and 0 added, change nothing.
void jitter_hsv(cv::Mat& pixels, const HsvGains& gains);

// Mixup: blends two pictures with a ratio from Beta(32, 32) and keeps the boxes
// of both (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup", 2018). The ratio takes 64
// draws.
double draw_mixup_ratio(sampling::RandomStream& draws);

// Sets `first` to ratio x first + (1 - ratio) x second, rounded down. REQUIRES:
// pictures of the same size and type, with 8 or 16 bits.
void mix_in(cv::Mat& first, const cv::Mat& second, double ratio);

}  // namespace headroom::augment
