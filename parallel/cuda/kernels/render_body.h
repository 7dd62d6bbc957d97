// Renders the pixels of a packed sample as CUDA threads do, in plain C++; a
// test runs the same code on the CPU. One thread per pixel.
//
// The arithmetic is that of the CPU's loops (pixel_math.h), so the bytes equal
// those of render_sample (worker/data/augment/sample_recipe.h).
#pragma once

#include "parallel/cuda/kernels/render_samples.h"
#include "worker/kernels/packed_sample.h"
#include "worker/kernels/pixel_math.h"

namespace headroom::cuda {

// `Level` is the type of one band of a pixel: uint8_t or uint16_t.

// The four pixels from which one pixel is blended; nullptr means gray.
template <typename Level>
struct FetchedPlace {
  const Level* around[4];
  int along_x, along_y;
};

HEADROOM_PIXEL bool has_pixel(const kernels::PackedTile& tile, int x, int y) {
  return x >= tile.left && x < tile.right && y >= tile.top && y < tile.bottom;
}

template <typename Level>
HEADROOM_PIXEL const Level* pixel_of(const uint8_t* sample,
                                     const kernels::PackedTile& tile, int x,
                                     int y, int bands) {
  const int64_t row = int64_t{y - tile.top} * (tile.right - tile.left);
  return reinterpret_cast<const Level*>(sample + tile.pixels) +
         (row + x - tile.left) * bands;
}

template <typename Level>
HEADROOM_PIXEL FetchedPlace<Level> fetched_place(
    const uint8_t* sample, const kernels::PackedPicture& picture, int width,
    int column, int64_t row, int bands) {
  const kernels::FetchPlace place =
      kernels::fetch_place(picture.warp, width, column, row);
  const int x = place.x >> kernels::kPlaceBits;
  const int y = place.y >> kernels::kPlaceBits;
  FetchedPlace<Level> fetched = {{nullptr, nullptr, nullptr, nullptr},
                                 place.x & (kernels::kPlaces - 1),
                                 place.y & (kernels::kPlaces - 1)};
  const auto* const tiles = reinterpret_cast<const kernels::PackedTile*>(
                                sample + sizeof(kernels::PackedSample)) +
                            picture.first_tile;
  // At a seam of a mosaic, each neighbour may be in another tile.
  for (int i = 0; i < picture.num_tiles; ++i) {
    const kernels::PackedTile& tile = tiles[i];
    for (int k = 0; k < 4; ++k) {
      const int neighbour_x = x + k % 2;
      const int neighbour_y = y + k / 2;
      if (has_pixel(tile, neighbour_x, neighbour_y)) {
        fetched.around[k] =
            pixel_of<Level>(sample, tile, neighbour_x, neighbour_y, bands);
      }
    }
  }
  return fetched;
}

template <typename Level>
HEADROOM_PIXEL Level fetched_level(const FetchedPlace<Level>& place, int band) {
  constexpr int kGray = kernels::kFillLevel<Level>;
  int level[4];
  for (int k = 0; k < 4; ++k) {
    level[k] = place.around[k] != nullptr ? place.around[k][band] : kGray;
  }
  return kernels::blended<Level>(level[0], level[1], level[2], level[3],
                                 place.along_x, place.along_y);
}

// Renders pixel (column, row) of image `index`.
template <typename Level>
HEADROOM_PIXEL void render_pixel(const RenderArguments& a, int index, int row,
                                 int column) {
  const uint8_t* const bytes = a.region + a.starts[index];
  const auto& sample = *reinterpret_cast<const kernels::PackedSample*>(bytes);
  const int from_column = sample.mirrored != 0 ? a.width - 1 - column : column;
  const int64_t from_row = int64_t{sample.first_row} +
                           (sample.upside_down != 0 ? a.rows - 1 - row : row);
  const FetchedPlace<Level> first = fetched_place<Level>(
      bytes, sample.pictures[0], a.width, from_column, from_row, a.bands);
  const bool mixes = sample.num_pictures == 2;
  FetchedPlace<Level> second = {};
  if (mixes) {
    second = fetched_place<Level>(bytes, sample.pictures[1], a.width,
                                  from_column, from_row, a.bands);
  }
  const auto level = [&](int band) -> Level {
    const Level own = fetched_level(first, band);
    return mixes
               ? kernels::mixed(own, fetched_level(second, band), sample.ratio)
               : own;
  };
  const int64_t pixel = (int64_t{index} * a.rows + row) * a.width + column;
  Level* const target = static_cast<Level*>(a.images) + pixel * a.bands;
  if (sizeof(Level) > 1 || sample.has_factors == 0) {
    for (int band = 0; band < a.bands; ++band) target[band] = level(band);
    return;
  }
  const kernels::Levels<kernels::OneLane> colour =
      kernels::jittered_colour<kernels::OneLane>({level(0), level(1), level(2)},
                                                 sample.factors);
  target[0] = static_cast<Level>(colour.first);
  target[1] = static_cast<Level>(colour.second);
  target[2] = static_cast<Level>(colour.third);
}

}  // namespace headroom::cuda
