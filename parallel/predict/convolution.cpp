#include "parallel/predict/convolution.h"
#include "parallel/base/units.h"

#include <algorithm>

namespace headroom::predict {
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
constexpr int64_t kBlockChannels = 16;
// The channels of a sample that a 1x1 weight gradient in bfloat16 transposes at
// a time, and what a primitive takes beside that.
constexpr int64_t kTurnedInputs = 128;
constexpr int64_t kTurnedOutputs = 256;
constexpr int64_t kTurningBytes = 9 << 10;
constexpr int64_t kSmallGradientBytes = 128;

bool is_float(const MicroBatchShape& extents) {
  return extents.element_bytes == kFloatBytes;
}

// A single small map may be left to LibTorch's own code, which unfolds it.
bool may_unfold(const ConvolutionShape& shape, const MicroBatchShape& extents) {
  return shape.groups == 1 && extents.samples == 1 && shape.kernel > 1 &&
         shape.kernel <= 3 &&
         extents.cells(shape.out_stride / shape.stride) * shape.in_channels <=
             kSmallMap;
}

bool uses_onednn(const ConvolutionShape& shape,
                 const MicroBatchShape& extents) {
  if (extents.is_mixed()) return true;
  if (!is_float(extents)) return false;
  if (shape.kernel > 1 || shape.stride > 1 || extents.num_threads > 1 ||
      extents.samples >= kLeastBatch) {
    return true;
  }
  return shape.may_be_flat && extents.cells(shape.out_stride) >= kLeastPixels;
}

bool is_depthwise(const ConvolutionShape& shape) {
  return shape.groups > 1 && shape.in_channels == shape.groups &&
         shape.out_channels == shape.groups;
}

// Each group's channels fill blocks of their own.
int64_t in_blocks_by_group(int64_t channels, int64_t groups) {
  return groups * round_up(channels / groups, kBlockChannels);
}

// Each group is a matrix of whole blocks; groups of one channel share a block.
int64_t group_weight_bytes(const ConvolutionShape& shape,
                           const MicroBatchShape& extents) {
  return shape.kernel * shape.kernel *
         in_blocks_by_group(shape.in_channels, shape.groups) *
         round_up(shape.out_channels / shape.groups, kBlockChannels) *
         extents.element_bytes;
}
int64_t depthwise_weight_bytes(const ConvolutionShape& shape,
                               const MicroBatchShape& extents) {
  return shape.kernel * shape.kernel * round_up(shape.groups, kBlockChannels) *
         extents.element_bytes;
}

// A weight gradient of one channel each has code of its own up to 3x3.
bool has_small_gradient(const ConvolutionShape& shape) {
  return is_depthwise(shape) && shape.kernel > 1 && shape.kernel <= 3;
}

int64_t inputs_in_blocks(const ConvolutionShape& shape) {
  if (shape.groups > 1)
    return in_blocks_by_group(shape.in_channels, shape.groups);
  return shape.in_channels < 16 ? std::max<int64_t>(shape.in_channels, 4)
                                : round_up(shape.in_channels, 16);
}

// Blocks of 16 channels and, for some shapes, a row of sums beside them.
int64_t blocked_weight_bytes(const ConvolutionShape& shape,
                             const MicroBatchShape& extents) {
  if (is_depthwise(shape)) return depthwise_weight_bytes(shape, extents);
  if (shape.groups > 1) return group_weight_bytes(shape, extents);
  const auto blocks = [](int64_t channels) { return round_up(channels, 16); };
  if (extents.is_mixed()) {
    // Blocks come in pairs from 64 channels on.
    const int64_t outputs = round_up(shape.out_channels, 16);
    return shape.kernel * shape.kernel * inputs_in_blocks(shape) *
           (outputs < 64 ? outputs : round_up(outputs, 32)) *
           extents.element_bytes;
  }
  const int64_t bytes = shape.kernel * shape.kernel *
                        std::max<int64_t>(shape.in_channels, 4) *
                        blocks(shape.out_channels) * extents.element_bytes;
  return shape.kernel == 1 ? bytes + bytes / 32 : bytes;
}

int64_t columns_bytes(const ConvolutionShape& shape,
                      const MicroBatchShape& extents) {
  if (shape.kernel == 1 && shape.stride == 1) return 0;
  if (extents.is_mixed()) return 0;
  if (is_float(extents) && !may_unfold(shape, extents)) return 0;
  return extents.map_bytes(shape.in_channels * shape.kernel * shape.kernel,
                           shape.out_stride);
}

// A bfloat16 weight gradient multiplies pairs of pixels: for one sample per
// thread, input and gradient are transposed so that pixels of a channel are
// neighbours.
int64_t turned_bytes(const ConvolutionShape& shape,
                     const MicroBatchShape& extents) {
  const int64_t outputs = in_blocks_by_group(shape.out_channels, shape.groups);
  const int64_t rows = extents.image_height / shape.out_stride;
  const int64_t columns = extents.image_width / shape.out_stride;
  if (shape.kernel == 1 && shape.groups == 1) {
    return (std::min(inputs_in_blocks(shape), kTurnedInputs) +
            std::min(outputs, kTurnedOutputs)) *
           rows * columns * extents.element_bytes;
  }
  const int64_t pairs = round_up(columns, 2) + (shape.kernel == 1 ? 2 : 0);
  const int64_t halo = extents.is_split() ? shape.kernel : 0;
  const int64_t input = shape.stride * (pairs + shape.kernel - 1) *
                        inputs_in_blocks(shape) * (rows * shape.stride + halo);
  return (input + pairs * outputs * rows) * extents.element_bytes;
}

int64_t input_bytes(const ConvolutionShape& shape,
                    const MicroBatchShape& extents) {
  const int64_t stride = shape.out_stride / shape.stride;
  // A kernel that reaches beyond a rank's rows gets those around them.
  const int64_t halo =
      extents.is_split()
          ? extents.rows_bytes(shape.kernel, shape.in_channels, stride)
          : 0;
  return extents.map_bytes(shape.in_channels, stride) + halo;
}

int64_t output_bytes(const ConvolutionShape& shape,
                     const MicroBatchShape& extents) {
  return extents.map_bytes(shape.out_channels, shape.out_stride);
}

// LibTorch convolves groups one after the other and joins them afterwards.
int64_t apart(const ConvolutionShape& shape, const MicroBatchShape& extents) {
  return shape.groups > 1 ? output_bytes(shape, extents) : 0;
}

// The workspace of a device's library.
int64_t observed_workspace(const ConvolutionShape& shape,
                           const MicroBatchShape& extents, bool is_backward) {
  if (extents.workspaces == nullptr) return 0;
  return extents.workspaces->bytes_of(
      {is_backward, shape.in_channels, shape.out_channels,
       shape.kernel * shape.kernel, shape.stride, shape.groups, extents.samples,
       extents.cells(shape.out_stride), extents.element_bytes});
}

// Input, weight and output as float32, beside an output of 16 bits that is not
// there yet.
int64_t widened_bytes(const ConvolutionShape& shape,
                      const MicroBatchShape& wide) {
  return input_bytes(shape, wide) + shape.weight_bytes(wide) +
         output_bytes(shape, wide);
}

}  // namespace

int64_t forward_scratch(const ConvolutionShape& shape,
                        const MicroBatchShape& extents) {
  if (extents.on_device) {
    return observed_workspace(shape, extents, /*is_backward=*/false);
  }
  if (extents.convolves_in_float) {
    const MicroBatchShape wide = extents.widened();
    return widened_bytes(shape, wide) + forward_scratch(shape, wide) -
           output_bytes(shape, extents);
  }
  const int64_t columns = columns_bytes(shape, extents);
  if (!uses_onednn(shape, extents)) return columns + apart(shape, extents);
  int64_t bytes = blocked_weight_bytes(shape, extents) + kPrimitiveBytes;
  // Groups of less than a block, strided: some rows of the input in blocks.
  if (extents.is_mixed() && shape.groups > 1 && shape.stride > 1)
    bytes += extents.num_threads * shape.kernel * inputs_in_blocks(shape) *
             (extents.image_width / shape.out_stride * shape.stride + 2) *
             extents.element_bytes;
  return std::max(columns, bytes);
}

int64_t input_gradient_scratch(const ConvolutionShape& shape,
                               const MicroBatchShape& extents) {
  if (extents.on_device) {
    return observed_workspace(shape, extents, /*is_backward=*/true);
  }
  if (extents.convolves_in_float) {
    const MicroBatchShape wide = extents.widened();
    return widened_bytes(shape, wide) + input_gradient_scratch(shape, wide) +
           input_bytes(shape, extents);
  }
  const int64_t columns = columns_bytes(shape, extents);
  if (!uses_onednn(shape, extents)) {
    return columns + (shape.groups > 1 ? input_bytes(shape, extents) : 0);
  }
  int64_t bytes = blocked_weight_bytes(shape, extents) + kPrimitiveBytes;
  if (shape.groups > 1) {
    if (extents.is_mixed() && shape.stride > 1)
      bytes +=
          extents.num_threads * input_bytes(shape, extents) / extents.samples;
  } else if (shape.kernel > 1 && shape.stride > 1) {
    const int64_t rows = extents.image_height / shape.out_stride + 2;
    const int64_t columns = extents.image_width / shape.out_stride + 2;
    bytes += extents.num_threads *
             (shape.out_channels * rows * columns * extents.element_bytes +
              kStridedBytes);
  }
  return std::max(bytes, columns);
}

int64_t weight_gradient_bytes(const ConvolutionShape& shape,
                              const MicroBatchShape& extents) {
  if (extents.on_device) {
    return shape.weight_bytes(extents) +
           observed_workspace(shape, extents, /*is_backward=*/true);
  }
  if (extents.convolves_in_float) {
    const MicroBatchShape wide = extents.widened();
    return widened_bytes(shape, wide) + weight_gradient_bytes(shape, wide) +
           input_bytes(shape, extents);
  }
  if (has_small_gradient(shape)) {
    return 3 * depthwise_weight_bytes(shape, extents) + kSmallGradientBytes;
  }
  if (extents.is_mixed()) {
    // The gradients lie in blocks, and as sums in float32.
    const int64_t blocked = shape.groups > 1
                                ? group_weight_bytes(shape, extents)
                                : blocked_weight_bytes(shape, extents);
    return 3 * blocked + kTurningBytes +
           extents.num_threads * turned_bytes(shape, extents);
  }
  const int64_t plain = shape.weight_bytes(extents);
  const int64_t unfolded = plain + columns_bytes(shape, extents);
  if (!uses_onednn(shape, extents)) {
    // A group's channels of both maps, apart.
    return shape.groups == 1 ? unfolded
                             : unfolded + plain +
                                   (input_bytes(shape, extents) +
                                    output_bytes(shape, extents)) /
                                       shape.groups;
  }
  if (shape.groups > 1) return group_weight_bytes(shape, extents) + 2 * plain;
  // Blocked, plain, and in the weight's memory format.
  return std::max(unfolded, blocked_weight_bytes(shape, extents) + 2 * plain);
}

Memory cast_weight(const OpContext& context, const ConvolutionShape& shape) {
  return context.casts_weights
             ? context.timeline.allocate(shape.weight_bytes(context.extents))
             : nullptr;
}

Memory weight_gradient(MemoryTimeline& timeline, const ConvolutionShape& shape,
                       const MicroBatchShape& extents) {
  const Memory rounded = timeline.allocate(shape.weight_bytes(extents));
  return extents.is_mixed()
             ? timeline.allocate(shape.weight_bytes(extents.widened()))
             : rounded;
}

}  // namespace headroom::predict
