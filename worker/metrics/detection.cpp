#include "worker/metrics/detection.h"

#include <algorithm>

namespace headroom::metrics {
namespace {

float map(float position, double pad, double ratio) {
  return (position - static_cast<float>(pad)) / static_cast<float>(ratio);
}

float clip(float position, int64_t size) {
  return std::clamp(position, 0.0f, static_cast<float>(size));
}

}  // namespace

Corners label_corners(double cx, double cy, double w, double h, int64_t height,
                      int64_t width) {
  const auto rows = static_cast<double>(height);
  const auto columns = static_cast<double>(width);
  const double x = cx * columns, y = cy * rows;
  const double half_w = w * columns / 2, half_h = h * rows / 2;
  return {static_cast<float>(x - half_w), static_cast<float>(y - half_h),
          static_cast<float>(x + half_w), static_cast<float>(y + half_h)};
}

Corners to_source(const Corners& box, const SourceMapping& mapping) {
  const double ratio = mapping.ratio;
  return {map(box.x1, mapping.pad_x, ratio), map(box.y1, mapping.pad_y, ratio),
          map(box.x2, mapping.pad_x, ratio), map(box.y2, mapping.pad_y, ratio)};
}

Corners clipped(const Corners& box, const SourceMapping& mapping) {
  return {clip(box.x1, mapping.width), clip(box.y1, mapping.height),
          clip(box.x2, mapping.width), clip(box.y2, mapping.height)};
}

}  // namespace headroom::metrics
