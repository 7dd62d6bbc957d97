#include "worker/data/labels/pixel_box.h"

#include <algorithm>

namespace headroom::labels {

std::vector<PixelBox> place_boxes(std::span<const BoxLabel> labels,
                                  const Placement& placement) {
  std::vector<PixelBox> boxes;
  boxes.reserve(labels.size());
  for (const BoxLabel& label : labels) {
    const double cx = label.cx, cy = label.cy, w = label.w, h = label.h;
    boxes.push_back({label.class_index,
                     placement.width * (cx - w / 2) + placement.x,
                     placement.height * (cy - h / 2) + placement.y,
                     placement.width * (cx + w / 2) + placement.x,
                     placement.height * (cy + h / 2) + placement.y});
  }
  return boxes;
}

void clip_boxes(std::vector<PixelBox>& boxes, double width, double height) {
  for (PixelBox& box : boxes) {
    box.x1 = std::clamp(box.x1, 0.0, width);
    box.x2 = std::clamp(box.x2, 0.0, width);
    box.y1 = std::clamp(box.y1, 0.0, height);
    box.y2 = std::clamp(box.y2, 0.0, height);
  }
}

std::vector<NormalizedBox> normalize_boxes(std::vector<PixelBox> boxes,
                                           int64_t width, int64_t height) {
  constexpr double kMargin = 1e-3;
  const auto w = static_cast<double>(width);
  const auto h = static_cast<double>(height);
  clip_boxes(boxes, w - kMargin, h - kMargin);
  std::vector<NormalizedBox> result;
  result.reserve(boxes.size());
  for (const PixelBox& box : boxes) {
    result.push_back({box.class_index, (box.x1 + box.x2) / 2 / w,
                      (box.y1 + box.y2) / 2 / h, box.width() / w,
                      box.height() / h});
  }
  return result;
}

}  // namespace headroom::labels
