#include "worker/data/augment/pixel_changes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <opencv2/imgproc.hpp>

#include "worker/data/augment/row_kernels.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/kernels/pixel_math.h"

namespace headroom::augment {
namespace {

constexpr int kClaheTiles = 8;  // tiles along each side

int draw_side(double probability, sampling::RandomStream& draws) {
  if (probability <= 0 || draws.uniform() >= probability) return 0;
  return 3 + 2 * static_cast<int>(draws.below(3));
}

bool draw(double probability, sampling::RandomStream& draws) {
  return probability > 0 && draws.uniform() < probability;
}

// Rec. 601 luma with weights in 65536ths.
uint8_t luma(const uint8_t* rgb) {
  return static_cast<uint8_t>(
      (19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
}

cv::Mat luma_of(const cv::Mat& pixels) {
  cv::Mat result(pixels.size(), CV_8UC1);
  for (int y = 0; y < pixels.rows; ++y) {
    const uint8_t* source = pixels.ptr<uint8_t>(y);
    uint8_t* target = result.ptr<uint8_t>(y);
    for (int x = 0; x < pixels.cols; ++x) target[x] = luma(source + 3 * x);
  }
  return result;
}

// Applies CLAHE to the brightness, and adds each pixel's gain to its three
// colours.
void spread_brightness(cv::Mat& pixels, double clip_limit) {
  const cv::Mat before = luma_of(pixels);
  cv::Mat after;
  cv::createCLAHE(clip_limit, {kClaheTiles, kClaheTiles})->apply(before, after);
  for (int y = 0; y < pixels.rows; ++y) {
    uint8_t* row = pixels.ptr<uint8_t>(y);
    for (int x = 0; x < pixels.cols; ++x) {
      const int gain = after.ptr<uint8_t>(y)[x] - before.ptr<uint8_t>(y)[x];
      for (int c = 0; c < 3; ++c) {
        uint8_t& value = row[3 * x + c];
        value = static_cast<uint8_t>(std::clamp(value + gain, 0, 255));
      }
    }
  }
}

uint16_t mean_of(std::vector<uint16_t>& levels) {
  const auto count = static_cast<uint32_t>(levels.size());
  uint32_t sum = count / 2;
  for (const uint16_t level : levels) sum += level;
  return static_cast<uint16_t>(sum / count);
}

uint16_t median_of(std::vector<uint16_t>& levels) {
  const auto middle =
      levels.begin() + static_cast<ptrdiff_t>(levels.size() / 2);
  std::nth_element(levels.begin(), middle, levels.end());
  return *middle;
}

// Replaces each 16-bit value by `reduce` of its neighbourhood. OpenCV is not
// used because it has no 16-bit median with side 7 and its mean uses floating
// point. `border` is OpenCV's constant for values beyond the edges. The cost
// per value grows with side x side, and it is not vectorised.
template <typename Reduce>
void change_levels(cv::Mat& pixels, int side, int border,
                   const Reduce& reduce) {
  const int reach = side / 2, bands = pixels.channels();
  cv::Mat around;
  cv::copyMakeBorder(pixels, around, reach, reach, reach, reach, border);
  std::vector<uint16_t> levels(static_cast<size_t>(side * side));
  for (int y = 0; y < pixels.rows; ++y) {
    auto* target = pixels.ptr<uint16_t>(y);
    for (int i = 0; i < pixels.cols * bands; ++i) {
      size_t count = 0;
      for (int row = 0; row < side; ++row) {
        const auto* source = around.ptr<uint16_t>(y + row) + i;
        for (int x = 0; x < side; ++x) levels[count++] = source[x * bands];
      }
      target[i] = reduce(levels);
    }
  }
}

}  // namespace

PixelChanges draw_pixel_changes(const configs::Hyperparameters& hyp,
                                sampling::RandomStream& draws) {
  PixelChanges changes;
  changes.blur = draw_side(hyp.blur, draws);
  changes.median_blur = draw_side(hyp.median_blur, draws);
  changes.gray = draw(hyp.gray, draws);
  if (draw(hyp.clahe, draws)) changes.clahe = draws.uniform(1, 4);
  return changes;
}

void change_pixels(cv::Mat& pixels, const PixelChanges& changes,
                   bool has_colours) {
  if (pixels.depth() == CV_16U) {
    if (changes.blur > 0) {
      change_levels(pixels, changes.blur, cv::BORDER_REFLECT_101, mean_of);
    }
    if (changes.median_blur > 0) {
      change_levels(pixels, changes.median_blur, cv::BORDER_REPLICATE,
                    median_of);
    }
    return;
  }
  if (changes.blur > 0) {
    codecs::change_bands(pixels, [&](cv::Mat& bands) {
      cv::blur(bands.clone(), bands, {changes.blur, changes.blur});
    });
  }
  if (changes.median_blur > 0) {
    codecs::change_bands(pixels, [&](cv::Mat& bands) {
      cv::medianBlur(bands.clone(), bands, changes.median_blur);
    });
  }
  if (!has_colours) return;
  if (changes.gray) {
    const cv::Mat gray = luma_of(pixels);
    cv::merge(std::vector<cv::Mat>{gray, gray, gray}, pixels);
  }
  if (changes.clahe > 0) spread_brightness(pixels, changes.clahe);
}

void flip_left_right(std::vector<labels::NormalizedBox>& boxes) {
  for (labels::NormalizedBox& box : boxes) box.cx = 1 - box.cx;
}

void flip_up_down(std::vector<labels::NormalizedBox>& boxes) {
  for (labels::NormalizedBox& box : boxes) box.cy = 1 - box.cy;
}

HsvGains draw_hsv_gains(const configs::Hyperparameters& hyp,
                        sampling::RandomStream& draws) {
  HsvGains gains;
  const double hue = draws.uniform(-1, 1) * hyp.hsv_h;
  if (hyp.add_hue != 0) {
    gains.added_hue = kernels::kHues * hue;
  } else {
    gains.hue = 1 + hue;
  }
  gains.saturation = 1 + draws.uniform(-1, 1) * hyp.hsv_s;
  gains.value = 1 + draws.uniform(-1, 1) * hyp.hsv_v;
  return gains;
}

bool changes_colours(const HsvGains& gains) { return gains != HsvGains(); }

kernels::HsvFactors factors_of(const HsvGains& gains) {
  const double turn = kernels::kHues;
  auto added = static_cast<float>(std::fmod(gains.added_hue + turn, turn));
  // Rounding to float may have made a whole turn of it.
  if (added >= kernels::kHues) added = 0;
  return {static_cast<float>(gains.hue), static_cast<float>(gains.saturation),
          static_cast<float>(gains.value), added};
}

void jitter_hsv(cv::Mat& pixels, const HsvGains& gains) {
  if (!changes_colours(gains)) return;
  const kernels::HsvFactors factors = factors_of(gains);
  std::vector<int32_t> colours(static_cast<size_t>(pixels.cols) + kMaxLanes);
  for (int y = 0; y < pixels.rows; ++y) {
    row_kernels().jitter(pixels.ptr<uint8_t>(y), pixels.cols, factors,
                         colours.data());
  }
}

}  // namespace headroom::augment
