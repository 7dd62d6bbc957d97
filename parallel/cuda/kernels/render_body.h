// A packed sample's pixels as CUDA's threads render them, in plain
// C++; a test runs the same text on the CPU. One thread a pixel.
//
// The arithmetic is that of the CPU's loops (pixel_math.h), so the bytes are
// those of render_sample (worker/data/augment/sample_recipe.h).
#pragma once

#include "parallel/cuda/kernels/render_samples.h"
#include "worker/kernels/packed_sample.h"
#include "worker/kernels/pixel_math.h"

namespace headroom::cuda {

// The four pixels that one is blended from; null: gray.
struct FetchedPlace {
  const uint8_t* around[4];
  int along_x, along_y;
};

HEADROOM_PIXEL bool has_pixel(const kernels::PackedTile& tile, int x, int y) {
  return x >= tile.left && x < tile.right && y >= tile.top && y < tile.bottom;
}

HEADROOM_PIXEL const uint8_t* pixel_of(const uint8_t* sample,
                                       const kernels::PackedTile& tile, int x,
                                       int y, int bands) {
  const int64_t row = int64_t{y - tile.top} * (tile.right - tile.left);
  return sample + tile.pixels + (row + x - tile.left) * bands;
}

HEADROOM_PIXEL FetchedPlace fetched_place(const uint8_t* sample,
                                          const kernels::PackedPicture& picture,
                                          int width, int column, int64_t row,
                                          int bands) {
  const kernels::FetchPlace place =
      kernels::fetch_place(picture.warp, width, column, row);
  const int x = place.x >> kernels::kPlaceBits;
  const int y = place.y >> kernels::kPlaceBits;
  FetchedPlace fetched = {{nullptr, nullptr, nullptr, nullptr},
                          place.x & (kernels::kPlaces - 1),
                          place.y & (kernels::kPlaces - 1)};
  const auto* const tiles = reinterpret_cast<const kernels::PackedTile*>(
                                sample + sizeof(kernels::PackedSample)) +
                            picture.first_tile;
  // Each neighbour may lie in another tile, at the seam of a mosaic.
  for (int i = 0; i < picture.num_tiles; ++i) {
    const kernels::PackedTile& tile = tiles[i];
    for (int k = 0; k < 4; ++k) {
      const int neighbour_x = x + k % 2;
      const int neighbour_y = y + k / 2;
      if (has_pixel(tile, neighbour_x, neighbour_y)) {
        fetched.around[k] =
            pixel_of(sample, tile, neighbour_x, neighbour_y, bands);
      }
    }
  }
  return fetched;
}

HEADROOM_PIXEL uint8_t fetched_level(const FetchedPlace& place, int band) {
  int level[4];
  for (int k = 0; k < 4; ++k) {
    level[k] =
        place.around[k] != nullptr ? place.around[k][band] : kernels::kFillGray;
  }
  return kernels::blended(level[0], level[1], level[2], level[3], place.along_x,
                          place.along_y);
}

// Pixel (column, row) of image `index`.
HEADROOM_PIXEL void render_pixel(const RenderArguments& a, int index, int row,
                                 int column) {
  const uint8_t* const bytes = a.region + a.starts[index];
  const auto& sample = *reinterpret_cast<const kernels::PackedSample*>(bytes);
  const int from_column = sample.mirrored != 0 ? a.width - 1 - column : column;
  const int64_t from_row = int64_t{sample.first_row} +
                           (sample.upside_down != 0 ? a.rows - 1 - row : row);
  const FetchedPlace first = fetched_place(bytes, sample.pictures[0], a.width,
                                           from_column, from_row, a.bands);
  const bool mixes = sample.num_pictures == 2;
  FetchedPlace second = {};
  if (mixes) {
    second = fetched_place(bytes, sample.pictures[1], a.width, from_column,
                           from_row, a.bands);
  }
  const auto level = [&](int band) -> uint8_t {
    const uint8_t own = fetched_level(first, band);
    return mixes
               ? kernels::mixed(own, fetched_level(second, band), sample.ratio)
               : own;
  };
  const int64_t pixel = (int64_t{index} * a.rows + row) * a.width + column;
  uint8_t* const target = a.images + pixel * a.bands;
  if (sample.has_factors == 0) {
    for (int band = 0; band < a.bands; ++band) target[band] = level(band);
    return;
  }
  const kernels::Levels<kernels::OneLane> colour =
      kernels::jittered_colour<kernels::OneLane>({level(0), level(1), level(2)},
                                                 sample.factors);
  target[0] = static_cast<uint8_t>(colour.first);
  target[1] = static_cast<uint8_t>(colour.second);
  target[2] = static_cast<uint8_t>(colour.third);
}

}  // namespace headroom::cuda
