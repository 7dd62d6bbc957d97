// row_kernels: the inner loops of augmentation over one row of pixels.
//
// row_kernels.cpp is compiled once per instruction set; the fastest version is
// chosen at run time. All versions use pixel_math.h's arithmetic and give the
// same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/kernels/pixel_math.h"

namespace headroom::augment {

// A tile of a larger picture: its pixels (RGB uint8 for RowKernels) and the
// part of them that is visible. All coordinates are positions in the larger
// picture.
struct TileView {
  const uint8_t* pixels = nullptr;  // pixel of the first row and column
  // Bytes between rows; all rows together are less than 2 GiB.
  ptrdiff_t step = 0;
  int left = 0, top = 0;  // position of the first pixel
  // The visible part, [begin, end). All of it is in memory.
  int begin_x = 0, end_x = 0, begin_y = 0, end_y = 0;
};

inline constexpr int kMaxLanes = 16;

struct RowKernels {
  // Sets target[3i .. 3i + 2] to the pixel at (xs[i], ys[i]), given in 32nds of
  // a pixel and blended from the four pixels around it; gray outside all tiles.
  // Tiles must not overlap. Writes 3 * count + 1 bytes. `kinds` is scratch
  // memory for `count` numbers.
  void (*fetch)(const int* xs, const int* ys, int count, const TileView* tiles,
                int num_tiles, uint8_t gray, int* kinds, uint8_t* target);

  // Applies jittered_colour to each RGB pixel in place. `colours` is scratch
  // memory for `count` + kMaxLanes numbers.
  void (*jitter)(uint8_t* pixels, int count, const kernels::HsvFactors& factors,
                 int32_t* colours);
};

enum class RowInstructionSet { kBaseline, kAvx2, kAvx512 };

// Returns nullptr if the processor does not have the instruction set.
const RowKernels* row_kernels_of(RowInstructionSet instruction_set);

// The kernels of the fastest instruction set that the processor has.
const RowKernels& row_kernels();

}  // namespace headroom::augment
