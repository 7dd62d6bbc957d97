// Sizes of the memory that device code takes in addition to tensors. The code
// that allocates it and the memory model that counts it read the same numbers
// here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel/base/units.h"

namespace headroom {

// Samples that one launch renders; all of them are on the device at once. A
// larger value means fewer launches and more staging memory.
inline constexpr int64_t kStagedSamples = 4;

// Bytes of staging memory for one packed sample (packed_sample.h) whose
// rendered image has `image_bytes`. The loader itself renders a sample whose
// tiles take more than twice its pixels, so this is an upper bound.
constexpr int64_t packed_room(int64_t image_bytes) {
  constexpr int64_t kRecipe = 1024;  // a recipe with two mosaics of nine tiles
  constexpr int64_t kAligned = 64;
  return round_up(2 * image_bytes + kRecipe, kAligned);
}

// Bytes of device memory for the packed samples of one launch.
constexpr int64_t staged_bytes(int64_t image_bytes) {
  return kStagedSamples * packed_room(image_bytes);
}

// Device libraries are fastest with 16-bit maps whose channel count is a
// multiple of 8; other counts can be several times slower. Where padding is
// faster, a map gets channels of zeros up to such a count.
inline constexpr int64_t kChannelsTogether = 8;
constexpr int64_t filled_channels(int64_t channels) {
  return round_up(channels, kChannelsTogether);
}

// A convolution of stride 2 with at most this many input channels is folded on
// a device: each 2 x 2 block of pixels becomes channels
// (worker/kernels/cpu/folded_convolution.h).
inline constexpr int64_t kMostFoldedChannels = 4;
inline constexpr int64_t kFoldedSide = 2;
constexpr int64_t folded_channels(int64_t channels) {
  return filled_channels(kFoldedSide * kFoldedSide * channels);
}

// The flat buffer is processed in pieces of at most kMostPieceElements. The
// kernels of a commit read a descriptor of kPieceBytes for each piece, and sum
// its squares in a double (parallel/cuda/kernels/flat_buffer_body.h).
inline constexpr int kMostPieceElements = 4096;
inline constexpr int kPieceBytes = 16;

// The largest window of our max-pooling kernels for devices. For each window
// they store the position of its largest cell in one byte
// (worker/kernels/device_kernels.h). Wider windows use LibTorch's max pooling,
// which stores the input and an 8-byte index for each window.
inline constexpr int64_t kWidestChosenWindow = 15;
constexpr bool chooses_in_bytes(int64_t window) {
  return window <= kWidestChosenWindow;
}

// Number of samples whose cells are summed at once on a device
// (worker/kernels/cpu/cell_sums.h). The device sums in float64 only tensors
// that are float64, so the samples are copied to float64 in batches; a batch is
// small compared with the map.
inline int64_t samples_summed_at_once(int64_t elements_of_a_sample) {
  constexpr int64_t kMostElements = int64_t{1} << 20;  // 8 MiB of float64
  return std::max<int64_t>(
      1, kMostElements / std::max<int64_t>(1, elements_of_a_sample));
}

}  // namespace headroom
