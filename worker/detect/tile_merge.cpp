#include "worker/detect/tile_merge.h"

#include <algorithm>
#include <cstddef>

namespace headroom::detect {
namespace {

// Boxes that are cut end this close to the border; a network is not exact.
constexpr float kBorder = 2;
constexpr float kCovered = 0.5F;

float area(const metrics::Corners& box) {
  return std::max(0.0F, box.x2 - box.x1) * std::max(0.0F, box.y2 - box.y1);
}

// The share of `box` that `other` covers.
float covered(const metrics::Corners& box, const metrics::Corners& other) {
  const float w = std::min(box.x2, other.x2) - std::max(box.x1, other.x1);
  const float h = std::min(box.y2, other.y2) - std::max(box.y1, other.y1);
  const float whole = area(box);
  return w > 0 && h > 0 && whole > 0 ? w * h / whole : 0;
}

bool is_repeated(const TileDetection& one,
                 const std::vector<metrics::Detection>& kept,
                 const MergeOptions& options) {
  const auto threshold = static_cast<float>(options.iou_threshold);
  return std::any_of(
      kept.begin(), kept.end(), [&](const metrics::Detection& other) {
        if (!options.agnostic &&
            other.class_index != one.detection.class_index) {
          return false;
        }
        const metrics::Corners& box = one.detection.box;
        return metrics::corner_iou(box, other.box, 0) > threshold ||
               (one.is_cut && covered(box, other.box) > kCovered);
      });
}

}  // namespace

bool is_cut(const metrics::Corners& box, const tiles::TileRect& tile,
            int64_t image_height, int64_t image_width) {
  const auto left = static_cast<float>(tile.x);
  const auto top = static_cast<float>(tile.y);
  const auto right = static_cast<float>(tile.x + tile.width);
  const auto bottom = static_cast<float>(tile.y + tile.height);
  return (tile.x > 0 && box.x1 < left + kBorder) ||
         (tile.y > 0 && box.y1 < top + kBorder) ||
         (tile.x + tile.width < image_width && box.x2 > right - kBorder) ||
         (tile.y + tile.height < image_height && box.y2 > bottom - kBorder);
}

std::vector<metrics::Detection> merge_tiles(std::vector<TileDetection> all,
                                            const MergeOptions& options) {
  std::stable_sort(all.begin(), all.end(),
                   [](const TileDetection& a, const TileDetection& b) {
                     if (a.is_cut != b.is_cut) return b.is_cut;
                     return a.detection.confidence > b.detection.confidence;
                   });
  std::vector<metrics::Detection> kept;
  for (const TileDetection& one : all) {
    if (!is_repeated(one, kept, options)) kept.push_back(one.detection);
  }
  std::stable_sort(
      kept.begin(), kept.end(),
      [](const metrics::Detection& a, const metrics::Detection& b) {
        return a.confidence > b.confidence;
      });
  const auto most = static_cast<size_t>(options.max_detections);
  if (kept.size() > most) kept.resize(most);
  return kept;
}

}  // namespace headroom::detect
