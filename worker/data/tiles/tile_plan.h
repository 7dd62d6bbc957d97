// TilePlan: decides which tiles of an image are written, and with which boxes.
//
//   box    clipped to the tile; kept if at least `min_visible` of its area is
//          in the tile, computed in float64 without a division
//   tile   with a box: always written. Without any part of a box: the share
//          `empty_share` is written, chosen by the image's name and the tile's
//          position alone, so that order and other images do not matter. With
//          parts of boxes that are all too small: never written, because as
//          background it would teach the network to ignore the object
//
// A box that is no higher and no wider than the overlap is entirely in some
// tile, because neighbouring tiles overlap by at least that much.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/data/labels/label_file.h"

namespace headroom::tiles {

// The tiles of a large image, used to cut a data set and to validate an image
// tile by tile.
//
// Along a side of `length` pixels, with tiles of `tile` pixels:
//
//   length <= tile   one tile, of that length
//   else             as few tiles of full size as overlap by at least
//                    round(tile * overlap) pixels, spread evenly from edge to
//                    edge; neighbouring overlaps differ by at most one pixel
//
//   |--------|          So the last tile ends where the image ends, no tile
//        |--------|     is beyond the edge, and all have the full size.
//             |--------|

struct TileRect {
  int64_t y = 0, x = 0, height = 0, width = 0;  // in pixels of the image
  bool operator==(const TileRect&) const = default;
};

// The rising start positions of tiles along one side. REQUIRES: the same as for
// tile_grid().
std::vector<int64_t> tile_starts(int64_t length, int64_t tile, double overlap);

// All tiles, row by row. REQUIRES: sizes > 0, 0 <= overlap < 1.
std::vector<TileRect> tile_grid(int64_t height, int64_t width,
                                int64_t tile_height, int64_t tile_width,
                                double overlap);

struct TileOptions {
  int64_t height = 640;  // pixels; a smaller image becomes one tile
  int64_t width = 640;
  // Overlap of neighbouring tiles as a share of a tile's side, [0, 1). A larger
  // overlap cuts fewer objects and makes more tiles.
  double overlap = 0;
  // Share of a box's area that a tile must show to keep the box, [0, 1].
  double min_visible = 0;
  double empty_share = 0;  // share of tiles without boxes that are kept
};

struct PlannedTile {
  TileRect rect;                        // position in the upright image
  std::vector<labels::BoxLabel> boxes;  // as fractions of the tile
  bool operator==(const PlannedTile&) const = default;
};

struct TilePlan {
  std::vector<PlannedTile> tiles;  // row by row
  int64_t in_grid = 0;             // number of tiles in the grid
  int64_t without_box = 0;         // tiles of the grid with no part of a box
  int64_t lost_boxes = 0;          // boxes that are kept in no tile
};

// `name` identifies the image: its file name without the folder. REQUIRES:
// options within the ranges above, and a positive size.
TilePlan plan_tiles(codecs::ImageSize size,
                    std::span<const labels::BoxLabel> boxes,
                    std::string_view name, const TileOptions& options);

// The boxes that are visible in one rectangle of the image, by the same rule as
// for tiles.
std::vector<labels::BoxLabel> boxes_in(const TileRect& rect,
                                       codecs::ImageSize size,
                                       std::span<const labels::BoxLabel> boxes,
                                       double min_visible);

// Whether to keep a tile without boxes. Of many tiles, about `share` are kept.
// A tile that is kept for a small share is also kept for every larger share.
bool keeps_empty_tile(std::string_view name, const TileRect& tile,
                      double share);

}  // namespace headroom::tiles
