// Max pooling of maps with a stride of one cell, and its gradient: the
// launchers of their kernels; launch.h has what they promise.
#pragma once

#include <cstdint>

#include "parallel/cuda/kernels/launch.h"

namespace headroom::cuda {

inline constexpr int kPoolRows = 4;  // cells of a thread, below one another

// Both passes go from one channels-last map to another of as many samples,
// columns and channels: pooling from a map to its windows' largest cells, its
// gradient from the windows' back to the map's. A cell of the latter has to do
// with `window` rows of the former, of which the first lies `rows_before` rows
// above its own, and with as many columns around its own.
struct PoolArguments {
  ElementType type = ElementType::kFloat32;
  const void* from = nullptr;
  int64_t from_stride = 0;  // elements from one of its pixels to the next
  void* to = nullptr;
  // The number of each window's cell that was chosen, row by row: pooling
  // writes them where they are not null, the gradient reads them.
  uint8_t* choices = nullptr;
  int64_t samples = 0;
  int64_t channels = 0;
  int32_t from_rows = 0;
  int32_t to_rows = 0;
  int32_t width = 0;
  int32_t window = 1;  // odd
  int32_t rows_before = 0;
  // Whether channels can be loaded and stored 16 bytes at a time.
  bool is_aligned = false;

  // Columns of kPoolRows cells, which kernels count in 31 bits.
  int64_t strips() const {
    return samples * ((to_rows + kPoolRows - 1) / kPoolRows) * width;
  }
};

extern "C" {
int headroom_max_pool(const PoolArguments* arguments, void* stream);
int headroom_max_pool_gradient(const PoolArguments* arguments, void* stream);
}

}  // namespace headroom::cuda
