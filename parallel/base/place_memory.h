// Sizes of the buffers of the loss without anchors (worker/loss/place_loss.h),
// which the memory model predicts.
#pragma once

#include <cstdint>

namespace headroom {

// The most places that a label takes, and so owns.
inline constexpr int64_t kPlacesPerLabel = 10;

// Bytes of an owned place and its target, kept from forward to backward.
inline constexpr int64_t kPlaceTargetBytes = 88;

// Split images: the numbers of a place that a label takes, as doubles.
inline constexpr int64_t kNumbersPerTakenPlace = 2;

// Elements of a class map whose cross-entropy is summed at once. A larger
// number needs more memory, a smaller one more calls.
inline constexpr int64_t kPlaceSumElements = int64_t{1} << 18;

// On a device (worker/kernels/place_loss_call.h): doubles of a label's largest
// alignment and overlap; the sums of the loss, and the most thread blocks that
// compute them for a level.
inline constexpr int64_t kNumbersOfMaxima = 2;
inline constexpr int64_t kPlaceSums = 4, kPlaceBlocksOfLevel = 512;

}  // namespace headroom
