#include "worker/data/hsv.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>

namespace headroom {
namespace {

using Table = std::array<uint8_t, 256>;

constexpr int kRowsAtOnce = 16;

Table hue_table(double gain) {
  Table table{};
  for (int i = 0; i < 256; ++i) {
    table[i] = static_cast<uint8_t>(std::fmod(i * gain, 180.0));
  }
  return table;
}

Table clipped_table(double gain) {
  Table table{};
  for (int i = 0; i < 256; ++i) {
    table[i] = static_cast<uint8_t>(std::clamp(i * gain, 0.0, 255.0));
  }
  return table;
}

void look_up(const std::array<Table, 3>& tables, cv::Mat& hsv) {
  for (int y = 0; y < hsv.rows; ++y) {
    auto* pixel = hsv.ptr<uint8_t>(y);
    for (int x = 0; x < hsv.cols; ++x, pixel += 3) {
      pixel[0] = tables[0][pixel[0]];
      pixel[1] = tables[1][pixel[1]];
      pixel[2] = tables[2][pixel[2]];
    }
  }
}

}  // namespace

HsvGains draw_hsv_gains(const Hyperparameters& hyp, RandomStream& draws) {
  HsvGains gains{};
  gains[0] = 1 + draws.uniform(-1, 1) * hyp.hsv_h;
  gains[1] = 1 + draws.uniform(-1, 1) * hyp.hsv_s;
  gains[2] = 1 + draws.uniform(-1, 1) * hyp.hsv_v;
  return gains;
}

void jitter_hsv(cv::Mat& pixels, const HsvGains& gains) {
  if (gains == HsvGains{1, 1, 1}) return;
  const std::array<Table, 3> tables{
      hue_table(gains[0]), clipped_table(gains[1]), clipped_table(gains[2])};
  // Some rows at a time: the copy between stays small, and in the cache.
  cv::Mat converted;
  for (int y = 0; y < pixels.rows; y += kRowsAtOnce) {
    cv::Mat rows = pixels.rowRange(y, std::min(y + kRowsAtOnce, pixels.rows));
    cv::cvtColor(rows, converted, cv::COLOR_RGB2HSV);
    look_up(tables, converted);
    cv::cvtColor(converted, rows, cv::COLOR_HSV2RGB);
  }
}

}  // namespace headroom
