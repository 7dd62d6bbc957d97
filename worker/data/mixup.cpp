#include "worker/data/mixup.h"

#include <cmath>

#include "parallel/base/check.h"

namespace headroom {
namespace {

constexpr int kShape = 32;

// Gamma of a whole shape: that many exponential waiting times.
double draw_gamma(RandomStream& draws) {
  double sum = 0;
  for (int i = 0; i < kShape; ++i) sum -= std::log1p(-draws.uniform());
  return sum;
}

}  // namespace

double draw_mixup_ratio(RandomStream& draws) {
  const double first = draw_gamma(draws);
  const double second = draw_gamma(draws);
  return first / (first + second);
}

BoxedImage mix(const BoxedImage& first, const BoxedImage& second,
               double ratio) {
  HEADROOM_CHECK(first.pixels.size() == second.pixels.size(),
                 "pictures of different size");
  BoxedImage result;
  result.pixels.create(first.pixels.size(), first.pixels.type());
  const int row_bytes = result.pixels.cols * result.pixels.channels();
  for (int y = 0; y < result.pixels.rows; ++y) {
    const auto* a = first.pixels.ptr<uint8_t>(y);
    const auto* b = second.pixels.ptr<uint8_t>(y);
    auto* target = result.pixels.ptr<uint8_t>(y);
    for (int i = 0; i < row_bytes; ++i) {
      target[i] = static_cast<uint8_t>(a[i] * ratio + b[i] * (1 - ratio));
    }
  }
  result.boxes = first.boxes;
  result.boxes.insert(result.boxes.end(), second.boxes.begin(),
                      second.boxes.end());
  return result;
}

}  // namespace headroom
