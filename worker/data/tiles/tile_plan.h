// TilePlan: which tiles of an image are written, and with which boxes.
//
//   box    clipped to the tile; it stays where at least `min_visible` of its
//          area is in the tile, in float64 and without a division
//   tile   with a box: always. Without any part of a box: the share
//          `empty_share`, chosen by the image's name and the tile's place
//          alone, so that neither order nor other images matter. With parts of
//          boxes, none of them large enough: never, for as background it would
//          teach that the object is none
//
// A box no higher and no wider than the overlap lies whole in some tile, for
// neighbours share at least that much along each side.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/data/labels/label_file.h"

namespace headroom::tiles {

// The tiles that a large image is cut into: for cutting a data set, and for
// looking at an image tile by tile.
//
// Along a side of `length` pixels, with tiles of `tile` pixels:
//
//   length <= tile   one tile, of that length
//   else             as few tiles of full size as overlap by at least
//                    round(tile * overlap) pixels, spread evenly from edge to
//                    edge; neighbouring overlaps differ by at most one pixel
//
//   |--------|          So the last tile ends where the image ends, no tile
//        |--------|     sticks out, and none is a sliver.
//             |--------|

struct TileRect {
  int64_t y = 0, x = 0, height = 0, width = 0;  // pixels of the image
  bool operator==(const TileRect&) const = default;
};

// The beginnings of the tiles of one side, rising. REQUIRES: as tile_grid.
std::vector<int64_t> tile_starts(int64_t length, int64_t tile, double overlap);

// Row by row. REQUIRES: sizes > 0, 0 <= overlap < 1.
std::vector<TileRect> tile_grid(int64_t height, int64_t width,
                                int64_t tile_height, int64_t tile_width,
                                double overlap);

struct TileOptions {
  int64_t height = 640;  // pixels; images that are smaller stay as they are
  int64_t width = 640;
  double overlap = 0;      // a share of a tile's side, [0, 1)
  double min_visible = 0;  // a share of a box's area, [0, 1]
  double empty_share = 0;  // [0, 1]
};

struct PlannedTile {
  TileRect rect;                        // its place in the upright image
  std::vector<labels::BoxLabel> boxes;  // normalised to the tile
  bool operator==(const PlannedTile&) const = default;
};

struct TilePlan {
  std::vector<PlannedTile> tiles;  // row by row
  int64_t in_grid = 0;             // tiles that the image has
  int64_t without_box = 0;  // How many tiles of the grid show no part of a box.
  int64_t lost_boxes = 0;   // boxes that no tile shows enough of
};

// `name` stands for the image: its file name without the folder. REQUIRES: the
// bounds above, a positive size.
TilePlan plan_tiles(codecs::ImageSize size,
                    std::span<const labels::BoxLabel> boxes,
                    std::string_view name, const TileOptions& options);

// What one rectangle of the image shows of its boxes, by the same rule.
std::vector<labels::BoxLabel> boxes_in(const TileRect& rect,
                                       codecs::ImageSize size,
                                       std::span<const labels::BoxLabel> boxes,
                                       double min_visible);

// Is a tile without boxes kept? Of many, about `share` are; those kept at a
// smaller share are kept at a larger one.
bool keeps_empty_tile(std::string_view name, const TileRect& tile,
                      double share);

}  // namespace headroom::tiles
