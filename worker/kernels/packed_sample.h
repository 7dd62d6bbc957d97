// PackedSample: all that is left to do for a sample once its draws are made and
// its images are loaded, with the pixels that takes, in one run of bytes that a
// device can be handed:
//
//   PackedSample | its PackedTiles | pixels of the first tile, the second, ..
//
// Offsets count from the sample's first byte, so packed samples can be put
// behind one another, at multiples of kPackedAlignment.
//
//   tiles -> warp [-> mixed with a second picture] -> hue, saturation, value
//         -> upside down -> mirrored
//
// worker/data/augment/sample_packing.h writes them,
// parallel/cuda/kernels/render_body.h reads them.
#pragma once

#include <cstdint>

#include "worker/kernels/pixel_math.h"

namespace headroom::kernels {

// The gray that surrounds pictures: all bands of a pixel where none is.

inline constexpr uint8_t kFillGray = 114;

// The same as a level of pixels of 8 bits, or of 16.
template <typename Level>
inline constexpr int kFillLevel = sizeof(Level) == 1 ? kFillGray
                                                     : kFillGray * 257;

inline constexpr int64_t kPackedAlignment = 16;

// What of a picture lies on [left, right) x [top, bottom) of a canvas: that
// many pixels, row after row, of the rendered images' type. Tiles of one canvas
// do not overlap.
struct PackedTile {
  int64_t pixels;  // the place of the first pixel
  int32_t left, right, top, bottom;
};

// A canvas, gray where no tile is, and what is seen of it.
struct PackedPicture {
  WarpInverse warp;
  int32_t first_tile, num_tiles;
};

struct PackedSample {
  PackedPicture pictures[2];
  double ratio;  // the first one's share, if two are mixed
  int32_t num_pictures;
  // What is rendered begins with this row of the whole sample, before it is
  // turned upside down.
  int32_t first_row;
  int32_t has_factors;  // 1 for RGB of 8 bits only
  HsvFactors factors;
  int32_t upside_down, mirrored;
};
static_assert(sizeof(PackedSample) % alignof(PackedTile) == 0);

}  // namespace headroom::kernels
