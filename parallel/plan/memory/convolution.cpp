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
// Of bfloat16: channels of a sample that a 1x1 weight gradient turns round at a
// time; what a primitive takes beside that.
constexpr int64_t kTurnedInputs = 128;
constexpr int64_t kTurnedOutputs = 256;
constexpr int64_t kTurningBytes = 9 << 10;

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

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
  if (extents.is_mixed()) return true;
  if (!is_float(extents)) return false;
  if (shape.kernel > 1 || shape.stride > 1 || extents.num_threads > 1 ||
      extents.samples >= kLeastBatch) {
    return true;
  }
  return shape.may_be_flat && extents.cells(shape.out_stride) >= kLeastPixels;
}

int64_t inputs_in_blocks(const ConvolutionShape& shape) {
  return shape.in_channels < 16 ? std::max<int64_t>(shape.in_channels, 4)
                                : rounded_up(shape.in_channels, 16);
}

// Blocks of 16 channels and, for some shapes, a row of sums beside them.
int64_t blocked_weight_bytes(const ConvolutionShape& shape,
                             const Extents& extents) {
  const auto blocks = [](int64_t channels) { return rounded_up(channels, 16); };
  if (extents.is_mixed()) {
    // From 64 channels on blocks come in pairs.
    const int64_t outputs = rounded_up(shape.out_channels, 16);
    return shape.kernel * shape.kernel * inputs_in_blocks(shape) *
           (outputs < 64 ? outputs : rounded_up(outputs, 32)) *
           extents.element_bytes;
  }
  const int64_t bytes = shape.kernel * shape.kernel *
                        std::max<int64_t>(shape.in_channels, 4) *
                        blocks(shape.out_channels) * extents.element_bytes;
  return shape.kernel == 1 ? bytes + bytes / 32 : bytes;
}

int64_t columns_bytes(const ConvolutionShape& shape, const Extents& extents) {
  if (shape.kernel == 1 && shape.stride == 1) return 0;
  if (extents.is_mixed()) return 0;
  if (is_float(extents) && !may_unfold(shape, extents)) return 0;
  return extents.map_bytes(shape.in_channels * shape.kernel * shape.kernel,
                           shape.out_stride);
}

// A bfloat16 weight gradient multiplies pairs of pixels: of one sample a
// thread, input and gradient are turned round so that pixels of a channel are
// neighbours.
int64_t turned_bytes(const ConvolutionShape& shape, const Extents& extents) {
  const int64_t outputs = rounded_up(shape.out_channels, 16);
  const int64_t rows = extents.image_height / shape.out_stride;
  const int64_t columns = extents.image_width / shape.out_stride;
  if (shape.kernel == 1) {
    return (std::min(inputs_in_blocks(shape), kTurnedInputs) +
            std::min(outputs, kTurnedOutputs)) *
           rows * columns * extents.element_bytes;
  }
  const int64_t pairs = rounded_up(columns, 2);
  const int64_t halo = extents.is_split() ? shape.kernel : 0;
  const int64_t input = shape.stride * (pairs + shape.kernel - 1) *
                        inputs_in_blocks(shape) * (rows * shape.stride + halo);
  return (input + pairs * outputs * rows) * extents.element_bytes;
}

int64_t input_bytes(const ConvolutionShape& shape, const Extents& extents) {
  const int64_t stride = shape.out_stride / shape.stride;
  // A kernel that reaches beyond a rank's rows gets those around them.
  const int64_t halo =
      extents.is_split()
          ? extents.rows_bytes(shape.kernel, shape.in_channels, stride)
          : 0;
  return extents.map_bytes(shape.in_channels, stride) + halo;
}

int64_t output_bytes(const ConvolutionShape& shape, const Extents& extents) {
  return extents.map_bytes(shape.out_channels, shape.out_stride);
}

// Input, weight and output as float32, beside an output of 16 bits that is not
// there yet.
int64_t widened_bytes(const ConvolutionShape& shape, const Extents& wide) {
  return input_bytes(shape, wide) + shape.weight_bytes(wide) +
         output_bytes(shape, wide);
}

}  // namespace

int64_t forward_scratch(const ConvolutionShape& shape, const Extents& extents) {
  if (extents.convolves_in_float) {
    const Extents wide = extents.widened();
    return widened_bytes(shape, wide) + forward_scratch(shape, wide) -
           output_bytes(shape, extents);
  }
  const int64_t columns = columns_bytes(shape, extents);
  if (!uses_onednn(shape, extents)) return columns;
  return std::max(columns,
                  blocked_weight_bytes(shape, extents) + kPrimitiveBytes);
}

int64_t input_gradient_scratch(const ConvolutionShape& shape,
                               const Extents& extents) {
  if (extents.convolves_in_float) {
    const Extents wide = extents.widened();
    return widened_bytes(shape, wide) + input_gradient_scratch(shape, wide) +
           input_bytes(shape, extents);
  }
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
  if (extents.convolves_in_float) {
    const Extents wide = extents.widened();
    return widened_bytes(shape, wide) + weight_gradient_bytes(shape, wide) +
           input_bytes(shape, extents);
  }
  if (extents.is_mixed()) {
    // In blocks, and as sums in float32.
    return 3 * blocked_weight_bytes(shape, extents) + kTurningBytes +
           extents.num_threads * turned_bytes(shape, extents);
  }
  const int64_t plain = shape.weight_bytes(extents);
  const int64_t unfolded = plain + columns_bytes(shape, extents);
  if (!uses_onednn(shape, extents)) return unfolded;
  // Blocked, plain, and in the weight's memory format.
  return std::max(unfolded, blocked_weight_bytes(shape, extents) + 2 * plain);
}

Memory cast_weight(const Pass& pass, const ConvolutionShape& shape) {
  return pass.casts_weights
             ? pass.tape.allocate(shape.weight_bytes(pass.extents))
             : nullptr;
}

Memory weight_gradient(Tape& tape, const ConvolutionShape& shape,
                       const Extents& extents) {
  const Memory rounded = tape.allocate(shape.weight_bytes(extents));
  return extents.is_mixed()
             ? tape.allocate(shape.weight_bytes(extents.widened()))
             : rounded;
}

}  // namespace headroom::memory
