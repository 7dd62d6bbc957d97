#include "worker/metrics/box_mapping.h"

#include <algorithm>

namespace headroom {
namespace {

float map(float position, double pad, double ratio, int64_t size) {
  const float source =
      (position - static_cast<float>(pad)) / static_cast<float>(ratio);
  return std::clamp(source, 0.0f, static_cast<float>(size));
}

}  // namespace

Corners to_source(const Corners& box, const Letterbox& letterbox) {
  const double ratio = letterbox.ratio;
  return {map(box.x1, letterbox.pad_x, ratio, letterbox.width),
          map(box.y1, letterbox.pad_y, ratio, letterbox.height),
          map(box.x2, letterbox.pad_x, ratio, letterbox.width),
          map(box.y2, letterbox.pad_y, ratio, letterbox.height)};
}

}  // namespace headroom
