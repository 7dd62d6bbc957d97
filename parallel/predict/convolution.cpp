#include "parallel/predict/convolution.h"

#include <algorithm>

#include "parallel/base/device_scratch.h"
#include "parallel/base/units.h"
#include "parallel/predict/amx_convolution.h"

namespace headroom::predict {
namespace {

// On one thread LibTorch uses oneDNN for 1x1 convolutions only from kLeastBatch
// samples on, or if the map is flattened, which needs kLeastPixels pixels.
constexpr int64_t kLeastBatch = 16;
constexpr int64_t kLeastPixels = 200;
// LibTorch treats a map of up to this many elements as small.
constexpr int64_t kSmallMap = 20480;
// Scratch of a oneDNN primitive with AVX-512 and without.
constexpr int64_t kPrimitiveBytes = 8344;
constexpr int64_t kAvx2PrimitiveBytes = 12'464;
constexpr int64_t kStridedBytes = 32 << 10;
constexpr int64_t kBlockChannels = 16;
// A bfloat16 1x1 weight gradient transposes this many channels of a sample at a
// time; the primitive needs kTurningBytes more.
constexpr int64_t kTurnedInputs = 128;
constexpr int64_t kTurnedOutputs = 256;
constexpr int64_t kTurningBytes = 9 << 10;
constexpr int64_t kSmallGradientBytes = 128;
constexpr int64_t kAvx2GradientBytes = 8320;

int64_t primitive_bytes(const MicroBatchShape& shape) {
  return shape.onednn_isa == OnednnIsa::kAvx2 ? kAvx2PrimitiveBytes
                                              : kPrimitiveBytes;
}

bool is_float(const MicroBatchShape& shape) {
  return shape.element_bytes == kFloatBytes;
}

// LibTorch may convolve a single small map itself, by unfolding it.
bool may_unfold(const Convolution& convolution, const MicroBatchShape& shape) {
  return convolution.groups == 1 && shape.samples == 1 &&
         convolution.kernel > 1 && convolution.kernel <= 3 &&
         shape.cells(convolution.out_stride / convolution.stride) *
                 convolution.in_channels <=
             kSmallMap;
}

bool uses_onednn(const Convolution& convolution, const MicroBatchShape& shape) {
  if (shape.is_mixed()) return true;
  if (!is_float(shape)) return false;
  if (convolution.kernel > 1 || convolution.stride > 1 ||
      shape.num_threads > 1 || shape.samples >= kLeastBatch) {
    return true;
  }
  return convolution.may_be_flat &&
         shape.cells(convolution.out_stride) >= kLeastPixels;
}

bool is_depthwise(const Convolution& convolution) {
  return convolution.groups > 1 &&
         convolution.in_channels == convolution.groups &&
         convolution.out_channels == convolution.groups;
}

// Pads each group's channels to whole blocks.
int64_t in_blocks_by_group(int64_t channels, int64_t groups) {
  return groups * round_up(channels / groups, kBlockChannels);
}

// Bytes of weights whose groups are each padded to whole blocks.
int64_t group_weight_bytes(const Convolution& convolution,
                           const MicroBatchShape& shape) {
  return convolution.kernel * convolution.kernel *
         in_blocks_by_group(convolution.in_channels, convolution.groups) *
         round_up(convolution.out_channels / convolution.groups,
                  kBlockChannels) *
         shape.element_bytes;
}
int64_t depthwise_weight_bytes(const Convolution& convolution,
                               const MicroBatchShape& shape) {
  return convolution.kernel * convolution.kernel *
         round_up(convolution.groups, kBlockChannels) * shape.element_bytes;
}

// oneDNN has special code for depthwise weight gradients up to 3x3.
bool has_small_gradient(const Convolution& convolution) {
  return is_depthwise(convolution) && convolution.kernel > 1 &&
         convolution.kernel <= 3;
}

int64_t inputs_in_blocks(const Convolution& convolution) {
  if (convolution.groups > 1)
    return in_blocks_by_group(convolution.in_channels, convolution.groups);
  return convolution.in_channels < 16
             ? std::max<int64_t>(convolution.in_channels, 4)
             : round_up(convolution.in_channels, 16);
}

// Weights are padded to blocks of 16 channels. For some shapes oneDNN also
// stores rows of sums beside them. These rows add at most 1/8 of the weights'
// bytes (AVX2, 64 to 255 output channels), 1/32 (AVX2, 256 or more) or 1/32
// (other 1x1 kernels).
int64_t blocked_weight_bytes(const Convolution& convolution,
                             const MicroBatchShape& shape) {
  if (is_depthwise(convolution))
    return depthwise_weight_bytes(convolution, shape);
  if (convolution.groups > 1) return group_weight_bytes(convolution, shape);
  const auto blocks = [](int64_t channels) { return round_up(channels, 16); };
  if (shape.is_mixed()) {
    // From 64 channels on, oneDNN pads to pairs of blocks.
    const int64_t outputs = round_up(convolution.out_channels, 16);
    return convolution.kernel * convolution.kernel *
           inputs_in_blocks(convolution) *
           (outputs < 64 ? outputs : round_up(outputs, 32)) *
           shape.element_bytes;
  }
  const int64_t bytes = convolution.kernel * convolution.kernel *
                        std::max<int64_t>(convolution.in_channels, 4) *
                        blocks(convolution.out_channels) * shape.element_bytes;
  if (shape.onednn_isa == OnednnIsa::kAvx2 && convolution.out_channels >= 64) {
    return bytes + bytes / (convolution.out_channels < 256 ? 8 : 32);
  }
  return convolution.kernel == 1 ? bytes + bytes / 32 : bytes;
}

bool uses_amx(const Convolution& convolution, const MicroBatchShape& shape) {
  return shape.onednn_isa == OnednnIsa::kAmx && shape.is_mixed() &&
         convolution.groups == 1;
}

int64_t columns_bytes(const Convolution& convolution,
                      const MicroBatchShape& shape) {
  if (convolution.kernel == 1 && convolution.stride == 1) return 0;
  if (shape.is_mixed()) return 0;
  if (is_float(shape) && !may_unfold(convolution, shape)) return 0;
  return shape.map_bytes(
      convolution.in_channels * convolution.kernel * convolution.kernel,
      convolution.out_stride);
}

// Without AVX-512 oneDNN unfolds inputs narrower than the kernel: each thread
// unfolds one sample and computes a gradient of its own; these gradients are
// then summed.
int64_t narrow_gradient(const Convolution& convolution,
                        const MicroBatchShape& shape) {
  const int64_t in_stride = convolution.out_stride / convolution.stride;
  if (shape.image_width / in_stride >= convolution.kernel) return 0;
  const int64_t windows =
      (convolution.kernel * convolution.kernel + 1) *
      shape.map_bytes(convolution.in_channels, convolution.out_stride) /
      std::max<int64_t>(1, shape.samples);
  return (1 + 4 * shape.num_threads) * convolution.weight_bytes(shape) +
         shape.num_threads * windows + kSmallGradientBytes * 3;
}

// A bfloat16 weight gradient multiplies pairs of pixels, so each thread
// transposes the input and the gradient of one sample to make the pixels of a
// channel adjacent.
int64_t turned_bytes(const Convolution& convolution,
                     const MicroBatchShape& shape) {
  const int64_t outputs =
      in_blocks_by_group(convolution.out_channels, convolution.groups);
  const int64_t rows = shape.image_height / convolution.out_stride;
  const int64_t columns = shape.image_width / convolution.out_stride;
  if (convolution.kernel == 1 && convolution.groups == 1) {
    return (std::min(inputs_in_blocks(convolution), kTurnedInputs) +
            std::min(outputs, kTurnedOutputs)) *
           rows * columns * shape.element_bytes;
  }
  const int64_t pairs =
      round_up(columns, 2) + (convolution.kernel == 1 ? 2 : 0);
  const int64_t halo = shape.is_split() ? convolution.kernel : 0;
  const int64_t input = convolution.stride * (pairs + convolution.kernel - 1) *
                        inputs_in_blocks(convolution) *
                        (rows * convolution.stride + halo);
  return (input + pairs * outputs * rows) * shape.element_bytes;
}

int64_t input_bytes(const Convolution& convolution,
                    const MicroBatchShape& shape) {
  const int64_t stride = convolution.out_stride / convolution.stride;
  // With a split image the input includes rows of neighbouring ranks.
  const int64_t halo = shape.is_split()
                           ? shape.rows_bytes(convolution.kernel,
                                              convolution.in_channels, stride)
                           : 0;
  return shape.map_bytes(convolution.in_channels, stride) + halo;
}

int64_t output_bytes(const Convolution& convolution,
                     const MicroBatchShape& shape) {
  return shape.map_bytes(convolution.out_channels, convolution.out_stride);
}

// LibTorch convolves each group separately and joins the outputs.
int64_t apart(const Convolution& convolution, const MicroBatchShape& shape) {
  return convolution.groups > 1 ? output_bytes(convolution, shape) : 0;
}

// The observed workspace of the card's convolution library.
int64_t observed_workspace(const Convolution& convolution,
                           const MicroBatchShape& shape, bool is_backward) {
  if (shape.workspaces == nullptr) return 0;
  return shape.workspaces->bytes_of(
      {is_backward, convolution.in_channels, convolution.out_channels,
       convolution.kernel * convolution.kernel, convolution.stride,
       convolution.groups, shape.samples, shape.cells(convolution.out_stride),
       shape.element_bytes});
}

// Whether the card's library works on copies: in float64 it needs the pixels of
// a channel to be adjacent. They already are in maps of one channel or one
// pixel.
bool is_copied(const MicroBatchShape& shape) {
  return shape.on_device && shape.element_bytes == kDoubleBytes;
}
int64_t copied_map_bytes(const MicroBatchShape& shape, int64_t channels,
                         int64_t stride, int64_t more_rows = 0) {
  if (channels == 1 || shape.cells(stride) <= shape.samples) return 0;
  return shape.map_bytes(channels, stride) +
         shape.rows_bytes(more_rows, channels, stride);
}
int64_t copied_output_bytes(const Convolution& convolution,
                            const MicroBatchShape& shape) {
  if (!is_copied(shape)) return 0;
  return copied_map_bytes(shape, convolution.out_channels,
                          convolution.out_stride);
}
// Rows received from neighbouring ranks.
int64_t halo_rows(const Convolution& convolution,
                  const MicroBatchShape& shape) {
  return shape.is_split()
             ? std::max<int64_t>(convolution.kernel - convolution.stride, 0)
             : 0;
}
int64_t copied_input_bytes(const Convolution& convolution,
                           const MicroBatchShape& shape) {
  if (!is_copied(shape)) return 0;
  const int64_t weight =
      convolution.kernel == 1 || convolution.in_channels == convolution.groups
          ? 0
          : convolution.weight_bytes(shape);
  return weight + copied_map_bytes(shape, convolution.in_channels,
                                   convolution.out_stride / convolution.stride,
                                   halo_rows(convolution, shape));
}

// Bytes of a folded convolution on a card: copies of the map, the weight and
// its gradient.
int64_t folded_bytes(const Convolution& convolution,
                     const MicroBatchShape& shape) {
  if (!shape.on_device || !shape.is_mixed() || convolution.groups > 1 ||
      convolution.stride != kFoldedSide ||
      convolution.in_channels > kMostFoldedChannels ||
      convolution.kernel % kFoldedSide != 0) {
    return 0;
  }
  const int64_t channels = folded_channels(convolution.in_channels);
  const int64_t taps =
      convolution.kernel * convolution.kernel / (kFoldedSide * kFoldedSide);
  return shape.map_bytes(channels, convolution.out_stride) +
         shape.rows_bytes(halo_rows(convolution, shape), channels,
                          convolution.out_stride) +
         2 * taps * channels * convolution.out_channels * shape.element_bytes;
}

// Scratch of the card's library for the output, or for either gradient. Copies
// of the inputs are freed before the result is copied back, and the result's
// copy is no larger than those copies.
int64_t device_forward_scratch(const Convolution& convolution,
                               const MicroBatchShape& shape) {
  return std::max(
      folded_bytes(convolution, shape) +
          copied_input_bytes(convolution, shape) +
          observed_workspace(convolution, shape, /*is_backward=*/false),
      copied_output_bytes(convolution, shape));
}
int64_t device_gradient_scratch(const Convolution& convolution,
                                const MicroBatchShape& shape) {
  return folded_bytes(convolution, shape) +
         copied_input_bytes(convolution, shape) +
         copied_output_bytes(convolution, shape) +
         observed_workspace(convolution, shape, /*is_backward=*/true);
}

// float32 copies of input, weight and output, made before the 16-bit output.
int64_t widened_bytes(const Convolution& convolution,
                      const MicroBatchShape& wide) {
  return input_bytes(convolution, wide) + convolution.weight_bytes(wide) +
         output_bytes(convolution, wide);
}

}  // namespace

int64_t forward_scratch(const Convolution& convolution,
                        const MicroBatchShape& shape) {
  if (shape.on_device) {
    return device_forward_scratch(convolution, shape);
  }
  if (shape.convolves_in_float) {
    const MicroBatchShape wide = shape.widened();
    return widened_bytes(convolution, wide) +
           forward_scratch(convolution, wide) -
           output_bytes(convolution, shape);
  }
  if (uses_amx(convolution, shape)) {
    return amx::forward_scratch(convolution, shape,
                                blocked_weight_bytes(convolution, shape));
  }
  const int64_t columns = columns_bytes(convolution, shape);
  if (!uses_onednn(convolution, shape))
    return columns + apart(convolution, shape);
  int64_t bytes =
      blocked_weight_bytes(convolution, shape) + primitive_bytes(shape);
  // In a strided convolution with groups each thread copies some input rows
  // into blocks.
  if (shape.is_mixed() && convolution.groups > 1 && convolution.stride > 1)
    bytes +=
        shape.num_threads * convolution.kernel * inputs_in_blocks(convolution) *
        (shape.image_width / convolution.out_stride * convolution.stride + 2) *
        shape.element_bytes;
  return std::max(columns, bytes);
}

int64_t input_gradient_scratch(const Convolution& convolution,
                               const MicroBatchShape& shape) {
  if (shape.on_device) {
    return device_gradient_scratch(convolution, shape);
  }
  if (shape.convolves_in_float) {
    const MicroBatchShape wide = shape.widened();
    return widened_bytes(convolution, wide) +
           input_gradient_scratch(convolution, wide) +
           input_bytes(convolution, shape);
  }
  if (uses_amx(convolution, shape)) {
    return amx::input_gradient_scratch(
        convolution, shape, blocked_weight_bytes(convolution, shape));
  }
  const int64_t columns = columns_bytes(convolution, shape);
  if (!uses_onednn(convolution, shape)) {
    return columns +
           (convolution.groups > 1 ? input_bytes(convolution, shape) : 0);
  }
  int64_t bytes =
      blocked_weight_bytes(convolution, shape) + primitive_bytes(shape);
  if (convolution.groups > 1) {
    if (shape.is_mixed() && convolution.stride > 1)
      bytes +=
          shape.num_threads * input_bytes(convolution, shape) / shape.samples;
  } else if (convolution.kernel > 1 && convolution.stride > 1) {
    const int64_t rows = shape.image_height / convolution.out_stride + 2;
    const int64_t columns = shape.image_width / convolution.out_stride + 2;
    bytes += shape.num_threads *
             (convolution.out_channels * rows * columns * shape.element_bytes +
              kStridedBytes);
  }
  return std::max(bytes, columns);
}

int64_t weight_gradient_bytes(const Convolution& convolution,
                              const MicroBatchShape& shape) {
  if (shape.on_device) {
    return convolution.weight_bytes(shape) +
           device_gradient_scratch(convolution, shape);
  }
  if (shape.convolves_in_float) {
    const MicroBatchShape wide = shape.widened();
    return widened_bytes(convolution, wide) +
           weight_gradient_bytes(convolution, wide) +
           input_bytes(convolution, shape);
  }
  if (has_small_gradient(convolution)) {
    return 3 * depthwise_weight_bytes(convolution, shape) + kSmallGradientBytes;
  }
  if (uses_amx(convolution, shape)) {
    return amx::weight_gradient_bytes(convolution, shape,
                                      blocked_weight_bytes(convolution, shape));
  }
  if (shape.is_mixed()) {
    // The gradients in blocks, and their sums in float32.
    const int64_t blocked = convolution.groups > 1
                                ? group_weight_bytes(convolution, shape)
                                : blocked_weight_bytes(convolution, shape);
    return 3 * blocked + kTurningBytes +
           shape.num_threads * turned_bytes(convolution, shape);
  }
  const int64_t plain = convolution.weight_bytes(shape);
  const int64_t unfolded = plain + columns_bytes(convolution, shape);
  if (!uses_onednn(convolution, shape)) {
    // Copies of one group's channels of the input and the output.
    return convolution.groups == 1 ? unfolded
                                   : unfolded + plain +
                                         (input_bytes(convolution, shape) +
                                          output_bytes(convolution, shape)) /
                                             convolution.groups;
  }
  if (convolution.groups > 1)
    return group_weight_bytes(convolution, shape) + 2 * plain;
  // Three copies of the gradient: in blocks, plain, and in the weight's memory
  // format.
  const int64_t reordered =
      blocked_weight_bytes(convolution, shape) + 2 * plain;
  if (shape.onednn_isa != OnednnIsa::kAvx2) {
    return std::max(unfolded, reordered);
  }
  return std::max(unfolded, std::max(reordered + kAvx2GradientBytes,
                                     narrow_gradient(convolution, shape)));
}

Memory cast_weight(const OpContext& context, const Convolution& convolution) {
  return context.casts_weights
             ? context.buffers.allocate(convolution.weight_bytes(context.shape))
             : nullptr;
}

Memory weight_gradient(LiveBuffers& buffers, const Convolution& convolution,
                       const MicroBatchShape& shape) {
  const Memory rounded = buffers.allocate(convolution.weight_bytes(shape));
  return shape.is_mixed()
             ? buffers.allocate(convolution.weight_bytes(shape.widened()))
             : rounded;
}

}  // namespace headroom::predict
