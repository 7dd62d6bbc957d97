#include "worker/data/augment/hsv.h"

#include <cstdint>
#include <vector>

#include "worker/data/augment/row_kernels.h"
#include "worker/kernels/pixel_math.h"

namespace headroom::augment {
HsvGains draw_hsv_gains(const configs::Hyperparameters& hyp,
                        sampling::RandomStream& draws) {
  HsvGains gains{};
  gains[0] = 1 + draws.uniform(-1, 1) * hyp.hsv_h;
  gains[1] = 1 + draws.uniform(-1, 1) * hyp.hsv_s;
  gains[2] = 1 + draws.uniform(-1, 1) * hyp.hsv_v;
  return gains;
}

bool changes_colours(const HsvGains& gains) {
  return gains != HsvGains{1, 1, 1};
}

kernels::HsvFactors factors_of(const HsvGains& gains) {
  return {static_cast<float>(gains[0]), static_cast<float>(gains[1]),
          static_cast<float>(gains[2])};
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
