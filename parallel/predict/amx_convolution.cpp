#include "parallel/predict/amx_convolution.h"

#include <algorithm>

#include "parallel/base/units.h"

namespace headroom::predict::amx {
namespace {

constexpr int64_t kElementBytes = 2;
constexpr int64_t kTileChannels = 32;
constexpr int64_t kPrimitiveBytes = 28'824;  // includes the tiles' memory
constexpr int64_t kBytesOfAChannel = 64;
constexpr int64_t kStridedBytes = 52 << 10;
// added if output channels are not a multiple of 16
constexpr int64_t kOddOutputs = 160 << 10;

int64_t in_tiles(int64_t channels) { return round_up(channels, kTileChannels); }

// AMX pads output channels to blocks of 64; in `weights` they are padded to
// blocks of 32.
int64_t in_wide_blocks(const Convolution& convolution, int64_t weights) {
  const int64_t outputs = convolution.out_channels;
  return outputs > 64 ? weights * round_up(outputs, 64) / outputs : weights;
}

struct Map {
  int64_t rows, columns;
};

Map output_of(const Convolution& convolution, const MicroBatchShape& shape) {
  const int64_t halo = shape.is_split() ? convolution.kernel : 0;
  return {shape.image_height / convolution.out_stride + halo,
          shape.image_width / convolution.out_stride};
}

// The padded copy of a map, in tiles: the whole map if it is narrow, else one
// block. With few channels each kernel row has its own block.
int64_t tiled_map(const Convolution& convolution, const Map& map,
                  int64_t channels) {
  const int64_t kernel = convolution.kernel, stride = convolution.stride;
  if (kernel == 1 && stride == 1) return 0;
  if (channels < kTileChannels / 2) {
    constexpr int64_t kRows = 42;
    return kernel * kRows * (map.columns + 4) * kTileChannels * kElementBytes;
  }
  constexpr int64_t kMorePixels = 1024;
  const int64_t whole =
      ((map.columns * stride + kernel) * (map.rows * stride + kernel + 3) +
       kMorePixels) *
      stride * in_tiles(channels) * kElementBytes;
  if (map.columns <= kTileChannels) return whole;
  const int64_t narrow = 192 << 10, wide = stride == 1 ? 1 << 20 : 3 << 19;
  return std::min(whole, stride * (channels <= kTileChannels ? narrow : wide));
}

}  // namespace

int64_t forward_scratch(const Convolution& convolution,
                        const MicroBatchShape& shape, int64_t weights) {
  const int64_t inputs = convolution.in_channels;
  return in_wide_blocks(convolution, weights) +
         shape.num_threads *
             (kPrimitiveBytes + inputs * kBytesOfAChannel +
              tiled_map(convolution, output_of(convolution, shape), inputs));
}

int64_t input_gradient_scratch(const Convolution& convolution,
                               const MicroBatchShape& shape, int64_t weights) {
  const int64_t outputs = convolution.out_channels;
  const Map map = output_of(convolution, shape);
  const int64_t more = convolution.kernel - 1;
  // A strided convolution gathers its input gradient from a padded copy of the
  // output's gradient.
  const int64_t copy =
      convolution.stride == 1
          ? kPrimitiveBytes + outputs * kBytesOfAChannel +
                tiled_map(convolution, map, outputs) +
                (outputs % (kTileChannels / 2) == 0 ? 0 : kOddOutputs)
          : kStridedBytes +
                (outputs < kTileChannels ? outputs : in_tiles(outputs)) *
                    (map.rows + more) * (map.columns + more) * kElementBytes;
  return in_wide_blocks(convolution, weights) + shape.num_threads * copy;
}

// Input and gradient are transposed in blocks, as pairs of pixels.
int64_t weight_gradient_bytes(const Convolution& convolution,
                              const MicroBatchShape& shape, int64_t weights) {
  constexpr int64_t kLeast = 112 << 10;
  // A 1x1 kernel's block holds all channels of its pixels.
  const int64_t most =
      std::max(convolution.stride * (896 << 10),
               (convolution.in_channels + convolution.out_channels) * 1024);
  const Map map = output_of(convolution, shape);
  const int64_t kernel = convolution.kernel, stride = convolution.stride;
  const int64_t columns = kernel == 1 ? map.columns : round_up(map.columns, 16);
  const int64_t elements =
      round_up(convolution.in_channels, 16) * stride * (columns + kernel - 1) *
          map.rows * stride +
      round_up(convolution.out_channels, 16) * columns * map.rows;
  return 3 * in_wide_blocks(convolution, weights) +
         shape.num_threads *
             std::min(kLeast + elements * kElementBytes * 3 / 2, most);
}

}  // namespace headroom::predict::amx
