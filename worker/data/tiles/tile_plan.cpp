#include "worker/data/tiles/tile_plan.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "worker/data/labels/pixel_box.h"

namespace headroom::tiles {

std::vector<int64_t> tile_starts(int64_t length, int64_t tile, double overlap) {
  HEADROOM_CHECK(length > 0 && tile > 0, "tiles and images have a size");
  HEADROOM_CHECK(overlap >= 0 && overlap < 1, "overlap is in [0, 1)");
  if (length <= tile) return {0};
  const int64_t shared = std::llround(static_cast<double>(tile) * overlap);
  const int64_t stride = std::max<int64_t>(1, tile - shared);
  const int64_t way = length - tile;
  const int64_t steps = divided_up(way, stride);
  std::vector<int64_t> starts;
  starts.reserve(static_cast<size_t>(steps) + 1);
  // Computes i * way / steps without overflow.
  for (int64_t i = 0; i <= steps; ++i) {
    starts.push_back(i * (way / steps) + i * (way % steps) / steps);
  }
  return starts;
}

std::vector<TileRect> tile_grid(int64_t height, int64_t width,
                                int64_t tile_height, int64_t tile_width,
                                double overlap) {
  const std::vector<int64_t> rows = tile_starts(height, tile_height, overlap);
  const std::vector<int64_t> columns = tile_starts(width, tile_width, overlap);
  std::vector<TileRect> tiles;
  tiles.reserve(rows.size() * columns.size());
  for (const int64_t y : rows) {
    for (const int64_t x : columns) {
      tiles.push_back(
          {y, x, std::min(tile_height, height), std::min(tile_width, width)});
    }
  }
  return tiles;
}

namespace {

double area(const labels::PixelBox& box) { return box.width() * box.height(); }

// The part of the box in the tile, in pixels of the image; nullopt if they do
// not overlap.
std::optional<labels::PixelBox> visible_part(const labels::PixelBox& box,
                                             const TileRect& tile) {
  labels::PixelBox part = box;
  part.x1 = std::max(part.x1, static_cast<double>(tile.x));
  part.y1 = std::max(part.y1, static_cast<double>(tile.y));
  part.x2 = std::min(part.x2, static_cast<double>(tile.x + tile.width));
  part.y2 = std::min(part.y2, static_cast<double>(tile.y + tile.height));
  if (part.width() <= 0 || part.height() <= 0) return std::nullopt;
  return part;
}

// Rounded labels may slightly exceed the image, so boxes are clipped to it.
std::vector<labels::PixelBox> boxes_of(
    codecs::ImageSize size, std::span<const labels::BoxLabel> boxes) {
  const auto width = static_cast<double>(size.width);
  const auto height = static_cast<double>(size.height);
  std::vector<labels::PixelBox> placed =
      labels::place_boxes(boxes, {width, height, 0, 0});
  labels::clip_boxes(placed, width, height);
  return placed;
}

bool shows_enough(const labels::PixelBox& part, const labels::PixelBox& box,
                  double min_visible) {
  return area(part) >= min_visible * area(box);
}

// Two boxes that both fill the tile become equal, so only one is kept.
void add_once(const labels::BoxLabel& label,
              std::vector<labels::BoxLabel>& boxes) {
  if (std::find(boxes.begin(), boxes.end(), label) == boxes.end()) {
    boxes.push_back(label);
  }
}

labels::BoxLabel label_in(const labels::PixelBox& part, const TileRect& tile) {
  const auto width = static_cast<double>(tile.width);
  const auto height = static_cast<double>(tile.height);
  const auto x = static_cast<double>(tile.x);
  const auto y = static_cast<double>(tile.y);
  return {part.class_index,
          static_cast<float>(((part.x1 + part.x2) / 2 - x) / width),
          static_cast<float>(((part.y1 + part.y2) / 2 - y) / height),
          static_cast<float>(part.width() / width),
          static_cast<float>(part.height() / height)};
}

}  // namespace

std::vector<labels::BoxLabel> boxes_in(const TileRect& rect,
                                       codecs::ImageSize size,
                                       std::span<const labels::BoxLabel> boxes,
                                       double min_visible) {
  std::vector<labels::BoxLabel> seen;
  for (const labels::PixelBox& box : boxes_of(size, boxes)) {
    const auto part = visible_part(box, rect);
    if (part && shows_enough(*part, box, min_visible)) {
      add_once(label_in(*part, rect), seen);
    }
  }
  return seen;
}

bool keeps_empty_tile(std::string_view name, const TileRect& tile,
                      double share) {
  const std::array<int64_t, 4> place{tile.y, tile.x, tile.height, tile.width};
  const uint64_t seed = XXH3_64bits(name.data(), name.size());
  const uint64_t hash = XXH3_64bits_withSeed(place.data(), sizeof(place), seed);
  return static_cast<double>(hash >> 11) * 0x1p-53 < share;
}

TilePlan plan_tiles(codecs::ImageSize size,
                    std::span<const labels::BoxLabel> boxes,
                    std::string_view name, const TileOptions& options) {
  HEADROOM_CHECK(options.min_visible >= 0 && options.min_visible <= 1,
                 "min_visible is in [0, 1]");
  const std::vector<labels::PixelBox> placed = boxes_of(size, boxes);
  std::vector<bool> is_kept(placed.size(), false);
  TilePlan plan;
  for (const TileRect& rect : tile_grid(size.height, size.width, options.height,
                                        options.width, options.overlap)) {
    PlannedTile tile{rect, {}};
    bool has_part = false;
    for (size_t i = 0; i < placed.size(); ++i) {
      const auto part = visible_part(placed[i], rect);
      if (!part) continue;
      has_part = true;
      if (!shows_enough(*part, placed[i], options.min_visible)) continue;
      is_kept[i] = true;
      add_once(label_in(*part, rect), tile.boxes);
    }
    ++plan.in_grid;
    if (!has_part) ++plan.without_box;
    const bool is_wanted =
        has_part ? !tile.boxes.empty()
                 : keeps_empty_tile(name, rect, options.empty_share);
    if (is_wanted) plan.tiles.push_back(std::move(tile));
  }
  plan.lost_boxes = std::count(is_kept.begin(), is_kept.end(), false);
  return plan;
}

}  // namespace headroom::tiles
