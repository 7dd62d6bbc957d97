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

Corners to_source(const Corners& box, const SourceMapping& mapping) {
  const double ratio = mapping.ratio;
  return {map(box.x1, mapping.pad_x, ratio, mapping.width),
          map(box.y1, mapping.pad_y, ratio, mapping.height),
          map(box.x2, mapping.pad_x, ratio, mapping.width),
          map(box.y2, mapping.pad_y, ratio, mapping.height)};
}

}  // namespace headroom
