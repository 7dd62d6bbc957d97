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
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::tiles {

struct TileRect {
  int64_t y = 0, x = 0, height = 0, width = 0;  // pixels of the image
  bool operator==(const TileRect&) const = default;
};

// Where the tiles of one side begin, rising. REQUIRES: as tile_grid.
std::vector<int64_t> tile_starts(int64_t length, int64_t tile, double overlap);

// Row by row. REQUIRES: sizes > 0, 0 <= overlap < 1.
std::vector<TileRect> tile_grid(int64_t height, int64_t width,
                                int64_t tile_height, int64_t tile_width,
                                double overlap);

}  // namespace headroom::tiles
