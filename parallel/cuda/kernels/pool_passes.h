// The launchers of the kernels for max pooling with stride 1 and for its
// gradient. See launch.h for their contract.
#pragma once

#include <cstdint>

#include "parallel/cuda/kernels/launch.h"

namespace headroom::cuda {

inline constexpr int kPoolRows = 4;  // vertically adjacent cells per thread

// Both passes read one channels-last map and write another with the same
// samples, columns and channels: pooling reads a map and writes the largest
// cell of each window; its gradient reads the windows' gradients and writes the
// gradient of the map. A written cell depends on `window` rows of the map that
// is read, of which the first is `rows_before` rows above the cell's own row,
// and on `window` columns centred on its own column.
struct PoolArguments {
  ElementType type = ElementType::kFloat32;
  const void* from = nullptr;
  int64_t from_stride = 0;  // elements from one pixel of `from` to the next
  void* to = nullptr;
  // The index of each window's largest cell in the window, counted row by row.
  // Pooling writes these indices if the pointer is not nullptr; the gradient
  // reads them.
  uint8_t* choices = nullptr;
  int64_t samples = 0;
  int64_t channels = 0;
  int32_t from_rows = 0;
  int32_t to_rows = 0;
  int32_t width = 0;
  int32_t window = 1;  // odd
  int32_t rows_before = 0;
  // True if channels can be loaded and stored 16 bytes at a time.
  bool is_aligned = false;

  // Number of strips, each of kPoolRows cells below each other. It must fit
  // into 31 bits.
  int64_t strips() const {
    return samples * ((to_rows + kPoolRows - 1) / kPoolRows) * width;
  }
};

extern "C" {
int headroom_max_pool(const PoolArguments* arguments, void* stream);
int headroom_max_pool_gradient(const PoolArguments* arguments, void* stream);
}

}  // namespace headroom::cuda
