// How much memory a device's code takes beside its tensors: the code that
// allocates it and the memory model that counts it read the same numbers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel/base/units.h"

namespace headroom {

// Samples of one launch that renders them, which lie on the device together.
inline constexpr int64_t kStagedSamples = 4;

// Bytes for one packed sample (packed_sample.h), of which `image_bytes` are
// rendered. A sample whose tiles take more than twice its pixels is rendered by
// the loader instead, so this bounds whatever is drawn.
constexpr int64_t packed_room(int64_t image_bytes) {
  constexpr int64_t kRecipe = 1024;  // a recipe with two times nine tiles
  constexpr int64_t kAligned = 64;
  return round_up(2 * image_bytes + kRecipe, kAligned);
}

// Bytes on the device for the packed samples of one launch.
constexpr int64_t staged_bytes(int64_t image_bytes) {
  return kStagedSamples * packed_room(image_bytes);
}

// A device's library computes maps of 16 bits by so many channels at once, and
// other numbers of them several times as slowly: where it pays, channels of
// zeros are put beside those of a map.
inline constexpr int64_t kChannelsTogether = 8;
constexpr int64_t filled_channels(int64_t channels) {
  return round_up(channels, kChannelsTogether);
}

// A convolution of stride 2 over at most so many channels is folded on a device
// (worker/kernels/cpu/folded_convolution.h): pixels of 2 x 2 become channels.
inline constexpr int64_t kMostFoldedChannels = 4;
inline constexpr int64_t kFoldedSide = 2;
constexpr int64_t folded_channels(int64_t channels) {
  return filled_channels(kFoldedSide * kFoldedSide * channels);
}

// The flat buffer is cut into pieces of at most so many elements; a commit's
// kernels read a description of kPieceBytes for each, and add up its squares in
// a double (parallel/cuda/kernels/flat_buffer_body.h).
inline constexpr int kMostPieceElements = 4096;
inline constexpr int kPieceBytes = 16;

// A device's own max pooling keeps for each window which of its cells was the
// largest, in a byte (worker/kernels/map_kernels.h). Wider windows are left to
// LibTorch, which keeps the input and an index of 8 bytes.
inline constexpr int64_t kWidestChosenWindow = 15;
constexpr bool chooses_in_bytes(int64_t window) {
  return window <= kWidestChosenWindow;
}

// How many samples a device sums the cells of at once
// (worker/kernels/cpu/cell_sums.h). It adds in float64 only what is float64,
// and a copy of so many samples is small beside the map.
inline int64_t samples_summed_at_once(int64_t elements_of_a_sample) {
  constexpr int64_t kMostElements = int64_t{1} << 20;  // 8 MiB of float64
  return std::max<int64_t>(
      1, kMostElements / std::max<int64_t>(1, elements_of_a_sample));
}

}  // namespace headroom
