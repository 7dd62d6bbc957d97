#include <algorithm>
#include <bit>

#include "parallel/cuda/kernels/launch.h"

namespace headroom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kVectorBytes = 16;

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

}  // namespace

BlockShape block_shape(const BatchNormArguments& arguments) {
  BlockShape shape;
  const int wide = kVectorBytes / bytes_of(arguments.type);
  if (arguments.channels % wide == 0 && arguments.gradient_stride % wide == 0 &&
      is_aligned(arguments.y) && is_aligned(arguments.gradient) &&
      is_aligned(arguments.result)) {
    shape.vector = wide;
  }
  const auto columns = static_cast<uint64_t>(
      (arguments.channels + shape.vector - 1) / shape.vector);
  // Powers of two: rows of threads are folded in halves.
  shape.size_x = static_cast<int>(
      std::min<uint64_t>(kWarp, std::bit_ceil(std::max<uint64_t>(1, columns))));
  shape.size_y = kThreads / shape.size_x;
  shape.tiles =
      (static_cast<int64_t>(columns) + shape.size_x - 1) / shape.size_x;
  return shape;
}

int64_t chunks_of(const PixelGroups& groups, const BlockShape& shape) {
  int64_t most = 1;
  for (int g = 0; g < groups.count; ++g) {
    most = std::max(most, groups.begin[g + 1] - groups.begin[g]);
  }
  const int64_t pixels = int64_t{kPixelsPerThread} * shape.size_y;
  return (most + pixels - 1) / pixels;
}

int64_t partial_elements(const BatchNormArguments& arguments) {
  return arguments.groups.count *
         chunks_of(arguments.groups, block_shape(arguments)) * 2 *
         arguments.channels;
}

}  // namespace headroom::cuda
