// How much room packed samples (packed_sample.h) get: the loader writes into
// it, the device has some of it to copy to, and plans count it.
//
// A sample whose tiles take more than twice its pixels is rendered by the
// loader, and travels finished. So room is bounded, whatever is drawn.
#pragma once

#include <cstdint>

namespace headroom {

// On the device at a time; those of a launch.
inline constexpr int64_t kStagedSamples = 4;

// Of one sample, of which `image_bytes` are rendered.
constexpr int64_t packed_room(int64_t image_bytes) {
  constexpr int64_t kRecipe = 1024;  // with two times nine tiles
  constexpr int64_t kAligned = 64;
  return (2 * image_bytes + kRecipe + kAligned - 1) / kAligned * kAligned;
}

// On the device.
constexpr int64_t staged_bytes(int64_t image_bytes) {
  return kStagedSamples * packed_room(image_bytes);
}

}  // namespace headroom
