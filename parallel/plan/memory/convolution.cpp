#include "parallel/plan/memory/convolution.h"

#include <algorithm>

namespace headroom::memory {
namespace {

// LibTorch leaves oneDNN for small batches of 1x1 convolutions on one thread;
// below so many pixels samples are not flattened either.
constexpr int64_t kLeastBatch = 16;
constexpr int64_t kLeastPixels = 200;
// Elements of a single map that is small to LibTorch.
constexpr int64_t kSmallMap = 20480;
// A primitive's own scratch.
constexpr int64_t kPrimitiveBytes = 8344;
constexpr int64_t kStridedBytes = 32 << 10;
constexpr int64_t kFloatBytes = 4;

bool is_float(const Extents& extents) {
  return extents.element_bytes == kFloatBytes;
}

// A single small map may be left to LibTorch's own code, which unfolds it.
bool may_unfold(const ConvolutionShape& shape, const Extents& extents) {
  return extents.samples == 1 && shape.kernel > 1 && shape.kernel <= 3 &&
         extents.cells(shape.out_stride / shape.stride) * shape.in_channels <=
             kSmallMap;
}

bool uses_onednn(const ConvolutionShape& shape, const Extents& extents) {
  if (!is_float(extents)) return false;
  if (shape.kernel > 1 || shape.stride > 1 || extents.num_threads > 1 ||
      extents.samples >= kLeastBatch) {
    return true;
  }
  return shape.may_be_flat && extents.cells(shape.out_stride) >= kLeastPixels;
}

// Blocks of 16 channels and, for some shapes, a row of sums beside them.
int64_t blocked_weight_bytes(const ConvolutionShape& shape,
                             const Extents& extents) {
  const auto blocks = [](int64_t channels) {
    return (channels + 15) / 16 * 16;
  };
  const int64_t bytes = shape.kernel * shape.kernel *
                        std::max<int64_t>(shape.in_channels, 4) *
                        blocks(shape.out_channels) * extents.element_bytes;
  return shape.kernel == 1 ? bytes + bytes / 32 : bytes;
}

int64_t columns_bytes(const ConvolutionShape& shape, const Extents& extents) {
  if (shape.kernel == 1 && shape.stride == 1) return 0;
  if (is_float(extents) && !may_unfold(shape, extents)) return 0;
  return extents.map_bytes(shape.in_channels * shape.kernel * shape.kernel,
                           shape.out_stride);
}

}  // namespace

int64_t forward_scratch(const ConvolutionShape& shape, const Extents& extents) {
  const int64_t columns = columns_bytes(shape, extents);
  if (!uses_onednn(shape, extents)) return columns;
  return std::max(columns,
                  blocked_weight_bytes(shape, extents) + kPrimitiveBytes);
}

int64_t input_gradient_scratch(const ConvolutionShape& shape,
                               const Extents& extents) {
  const int64_t columns = columns_bytes(shape, extents);
  if (!uses_onednn(shape, extents)) return columns;
  int64_t bytes = blocked_weight_bytes(shape, extents) + kPrimitiveBytes;
  if (shape.kernel > 1 && shape.stride > 1) {
    const int64_t rows = extents.image_height / shape.out_stride + 2;
    const int64_t columns = extents.image_width / shape.out_stride + 2;
    bytes += extents.num_threads *
             (shape.out_channels * rows * columns * extents.element_bytes +
              kStridedBytes);
  }
  return std::max(bytes, columns);
}

int64_t weight_gradient_bytes(const ConvolutionShape& shape,
                              const Extents& extents) {
  const int64_t plain = shape.weight_bytes(extents);
  const int64_t unfolded = plain + columns_bytes(shape, extents);
  if (!uses_onednn(shape, extents)) return unfolded;
  // Blocked, plain, and in the weight's memory format.
  return std::max(unfolded, blocked_weight_bytes(shape, extents) + 2 * plain);
}

}  // namespace headroom::memory
