// PackedSample: everything needed to render a sample after its random draws are
// made and its images are loaded, including the pixels, in one range of bytes
// that can be copied to a device:
//
//   PackedSample | its PackedTiles | pixels of the first tile, the second, ..
//
// Offsets are relative to the sample's first byte, so packed samples can be
// stored one after another, at multiples of kPackedAlignment.
//
//   tiles -> warp [-> mixed with a second picture] -> hue, saturation, value
//         -> upside down -> mirrored
//
// worker/data/augment/sample_packing.h writes packed samples, and
// parallel/cuda/kernels/render_body.h reads them.
#pragma once

#include <cstdint>

#include "worker/kernels/pixel_math.h"

namespace headroom::kernels {

// The gray around pictures, in all bands of a pixel.

inline constexpr uint8_t kFillGray = 114;

// kFillGray as a level of 8-bit or 16-bit pixels.
template <typename Level>
inline constexpr int kFillLevel = sizeof(Level) == 1 ? kFillGray
                                                     : kFillGray * 257;

inline constexpr int64_t kPackedAlignment = 16;

// The part of an image that covers [left, right) x [top, bottom) of a canvas.
// Its pixels are stored row by row, in the type of the rendered images. Tiles
// of one canvas do not overlap.
struct PackedTile {
  int64_t pixels;  // offset of the first pixel
  int32_t left, right, top, bottom;
};

// A canvas of tiles, gray elsewhere, and the warp that maps it to the picture.
struct PackedPicture {
  WarpInverse warp;
  int32_t first_tile, num_tiles;
};

struct PackedSample {
  PackedPicture pictures[2];
  double ratio;  // weight of the first picture, if two are mixed
  int32_t num_pictures;
  // The first rendered row of the whole sample, counted before the sample is
  // flipped upside down.
  int32_t first_row;
  int32_t has_factors;  // 1 only for 8-bit RGB
  HsvFactors factors;
  int32_t upside_down, mirrored;
};
static_assert(sizeof(PackedSample) % alignof(PackedTile) == 0);

}  // namespace headroom::kernels
