#include "worker/data/tiles/tile_grid.h"

#include <algorithm>
#include <cmath>

#include "parallel/base/check.h"

namespace headroom::tiles {

std::vector<int64_t> tile_starts(int64_t length, int64_t tile, double overlap) {
  HEADROOM_CHECK(length > 0 && tile > 0, "tiles and images have a size");
  HEADROOM_CHECK(overlap >= 0 && overlap < 1, "overlap is in [0, 1)");
  if (length <= tile) return {0};
  const int64_t shared = std::llround(static_cast<double>(tile) * overlap);
  const int64_t stride = std::max<int64_t>(1, tile - shared);
  const int64_t way = length - tile;
  const int64_t steps = (way + stride - 1) / stride;
  std::vector<int64_t> starts;
  starts.reserve(static_cast<size_t>(steps) + 1);
  // i * way / steps, in parts that cannot overflow.
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

}  // namespace headroom::tiles
