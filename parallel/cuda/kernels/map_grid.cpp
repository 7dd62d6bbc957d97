#include <algorithm>
#include <bit>

#include "parallel/base/units.h"
#include "parallel/cuda/kernels/batch_norm_body.h"
#include "parallel/cuda/kernels/launch.h"

namespace headroom::cuda {
namespace {

// Pixels per thread: at least as many as a thread loads at a time. A pass that
// writes a map gets few, so that other blocks can compensate for a late block.
constexpr int64_t kLeastPixels = 4;
constexpr int64_t kMostPixels = 32;

int bytes_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat64:
      return 8;
    case ElementType::kFloat32:
      return 4;
    default:
      return 2;
  }
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kVectorBytes == 0;
}

int64_t largest_group(const PixelGroups& groups) {
  int64_t most = 1;
  for (int g = 0; g < groups.count; ++g) {
    most = std::max(most, groups.begin[g + 1] - groups.begin[g]);
  }
  return most;
}

}  // namespace

MapGrid map_grid(const BatchNormArguments& arguments, bool sums) {
  MapGrid grid;
  const int wide = kVectorBytes / bytes_of(arguments.type);
  if (arguments.channels % wide == 0 && arguments.gradient_stride % wide == 0 &&
      is_aligned(arguments.y) && is_aligned(arguments.gradient) &&
      is_aligned(arguments.result)) {
    grid.vector = wide;
  }
  const int64_t columns = divided_up(arguments.channels, grid.vector);
  // A power of two, so that threads of one channel are evenly spaced in a warp.
  grid.size_x = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(
      std::clamp<int64_t>(columns, 1, columns_of(grid.vector)))));
  grid.size_y = kMapThreads / grid.size_x;
  grid.tiles = divided_up(columns, grid.size_x);

  const int64_t pixels = largest_group(arguments.groups);
  const int64_t blocks =
      int64_t{kBlocksPerMultiprocessor} * arguments.multiprocessors;
  const int64_t chunks =
      divided_up(blocks, grid.tiles * std::max(1, arguments.groups.count));
  grid.chunk_pixels =
      std::max(divided_up(pixels, chunks), kLeastPixels * grid.size_y);
  if (!sums) {
    grid.chunk_pixels = std::min(grid.chunk_pixels, kMostPixels * grid.size_y);
  }
  grid.chunks = divided_up(pixels, grid.chunk_pixels);
  return grid;
}

int64_t partial_bytes(const BatchNormArguments& arguments) {
  const bool is_double = arguments.type == ElementType::kFloat64;
  return arguments.groups.count * map_grid(arguments, true).chunks * 2 *
         arguments.channels *
         static_cast<int64_t>(is_double ? sizeof(double) : sizeof(float));
}

}  // namespace headroom::cuda
