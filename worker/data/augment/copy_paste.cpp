#include "worker/data/augment/copy_paste.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

namespace headroom::augment {
namespace {

constexpr double kNoArea = 1e-16;

// The part of the area of `hidden` that `box` covers, 0 to 1.
double covered_share(const labels::PixelBox& box,
                     const labels::PixelBox& hidden) {
  const double w = std::min(box.x2, hidden.x2) - std::max(box.x1, hidden.x1);
  const double h = std::min(box.y2, hidden.y2) - std::max(box.y1, hidden.y1);
  return std::max(w, 0.0) * std::max(h, 0.0) /
         (hidden.width() * hidden.height() + kNoArea);
}

// The sorted x positions at which the horizontal line at `y` crosses the
// outline.
std::vector<double> crossings(const PixelOutline& outline, double y) {
  std::vector<double> result;
  for (size_t i = 0; i < outline.size(); ++i) {
    const cv::Point2d* above = &outline[i];
    const cv::Point2d* below = &outline[(i + 1) % outline.size()];
    if ((above->y <= y) == (below->y <= y)) continue;
    // Sort the two ends of an edge. If an outline contains the edge in both
    // directions, both then give exactly the same position.
    if (above->y > below->y) std::swap(above, below);
    result.push_back(above->x + (y - above->y) / (below->y - above->y) *
                                    (below->x - above->x));
  }
  std::sort(result.begin(), result.end());
  return result;
}

// The first pixel whose centre is at x or to the right of it.
int first_pixel(double x, int width) {
  return static_cast<int>(
      std::clamp(std::ceil(x - 0.5), 0.0, static_cast<double>(width)));
}

}  // namespace

std::vector<PixelOutline> draw_pastes(double share, double width,
                                      std::span<const OutlinedBox> objects,
                                      std::vector<labels::PixelBox>& boxes,
                                      sampling::RandomStream& draws) {
  std::vector<size_t> order(objects.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Rounds half to even, like Python.
  const auto count = static_cast<size_t>(
      std::nearbyint(share * static_cast<double>(objects.size())));
  std::vector<PixelOutline> pastes;
  // A Fisher-Yates shuffle of the first `count` elements.
  for (size_t i = 0; i < count; ++i) {
    const auto rest = static_cast<int64_t>(order.size() - i);
    std::swap(order[i], order[i + static_cast<size_t>(draws.below(rest))]);
    const OutlinedBox& object = objects[order[i]];
    labels::PixelBox mirrored = boxes[object.box];
    mirrored.x1 = width - boxes[object.box].x2;
    mirrored.x2 = width - boxes[object.box].x1;
    if (std::any_of(boxes.begin(), boxes.end(),
                    [&](const labels::PixelBox& box) {
                      return covered_share(mirrored, box) >= kMostHidden;
                    })) {
      continue;
    }
    boxes.push_back(mirrored);
    pastes.push_back(object.outline);
    for (cv::Point2d& point : pastes.back()) point.x = width - point.x;
  }
  return pastes;
}

void paste_mirrored(cv::Mat& pixels, int64_t first_row,
                    std::span<const PixelOutline> outlines) {
  const size_t pixel_bytes = pixels.elemSize();
  const size_t row_bytes = static_cast<size_t>(pixels.cols) * pixel_bytes;
  for (int y = 0; y < pixels.rows; ++y) {
    uint8_t* const row = pixels.ptr(y);
    std::vector<uint8_t> before;
    for (const PixelOutline& outline : outlines) {
      const std::vector<double> at =
          crossings(outline, static_cast<double>(first_row + y) + 0.5);
      if (at.empty()) continue;
      if (before.empty()) before.assign(row, row + row_bytes);
      for (size_t i = 0; i + 1 < at.size(); i += 2) {
        const int end = first_pixel(at[i + 1], pixels.cols);
        for (int x = first_pixel(at[i], pixels.cols); x < end; ++x) {
          const auto mirrored = static_cast<size_t>(pixels.cols - 1 - x);
          std::memcpy(row + static_cast<size_t>(x) * pixel_bytes,
                      before.data() + mirrored * pixel_bytes, pixel_bytes);
        }
      }
    }
  }
}

}  // namespace headroom::augment
