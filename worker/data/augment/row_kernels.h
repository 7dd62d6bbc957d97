// row_kernels: the arithmetic of augmentation over a row of pixels.
//
// row_kernels.cpp is compiled once per instruction set and chosen at run time.
// The arithmetic is pixel_math's: every set gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/kernels/pixel_math.h"

namespace headroom::augment {

// Pixels, RGB uint8 for RowKernels, seen through a window of a larger picture.
// Coordinates are those of the larger one.
struct TileView {
  const uint8_t* pixels = nullptr;  // its first row and column
  // Bytes between rows; all rows together are less than 2 GiB.
  ptrdiff_t step = 0;
  int left = 0, top = 0;  // its first pixel's place
  // What is seen of it, [begin, end); all of it is in memory.
  int begin_x = 0, end_x = 0, begin_y = 0, end_y = 0;
};

inline constexpr int kMaxLanes = 16;

struct RowKernels {
  // target[3i .. 3i + 2] = the pixel at (xs[i], ys[i]), in 32nds of a pixel,
  // blended from the four around it; gray where no tile is. Tiles do not
  // overlap. Writes 3 * count + 1 bytes; `kinds` has room for `count`.
  void (*fetch)(const int* xs, const int* ys, int count, const TileView* tiles,
                int num_tiles, uint8_t gray, int* kinds, uint8_t* target);

  // jittered_colour of each pixel, RGB, in place. `colours` has room for
  // `count` + kMaxLanes.
  void (*jitter)(uint8_t* pixels, int count, const kernels::HsvFactors& factors,
                 int32_t* colours);
};

enum class RowInstructionSet { kBaseline, kAvx2, kAvx512 };

// Null where the processor lacks it.
const RowKernels* row_kernels_of(RowInstructionSet instruction_set);

// The fastest that the processor has.
const RowKernels& row_kernels();

}  // namespace headroom::augment
