#include "worker/data/augment/pixel_changes.h"

#include <cmath>

#include "parallel/base/check.h"
#include "worker/kernels/pixel_math.h"

namespace headroom::augment {
namespace {

constexpr int kShape = 32;

// A gamma distribution with a whole-number shape is the sum of that many
// exponential waiting times.
double draw_gamma(sampling::RandomStream& draws) {
  double sum = 0;
  for (int i = 0; i < kShape; ++i) sum -= std::log1p(-draws.uniform());
  return sum;
}

template <typename Level>
void mix_levels(cv::Mat& first, const cv::Mat& second, double ratio) {
  const int levels = first.cols * first.channels();
  for (int y = 0; y < first.rows; ++y) {
    auto* const target = first.ptr<Level>(y);
    const auto* const other = second.ptr<Level>(y);
    for (int i = 0; i < levels; ++i) {
      target[i] = kernels::mixed(target[i], other[i], ratio);
    }
  }
}

}  // namespace

double draw_mixup_ratio(sampling::RandomStream& draws) {
  const double first = draw_gamma(draws);
  const double second = draw_gamma(draws);
  return first / (first + second);
}

void mix_in(cv::Mat& first, const cv::Mat& second, double ratio) {
  HEADROOM_CHECK(first.size() == second.size() && first.type() == second.type(),
                 "pictures of different size");
  if (first.depth() == CV_16U) {
    mix_levels<uint16_t>(first, second, ratio);
  } else {
    mix_levels<uint8_t>(first, second, ratio);
  }
}

}  // namespace headroom::augment
