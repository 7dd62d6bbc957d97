// What a commit takes on a device beside the state itself: what the device's
// code allocates, and what the memory model counts of it.
#pragma once

#include <cstdint>

namespace headroom {

// Of the state's type: sums of gradients, a part of the flat buffer at a time
// (worker/step/device_state.h).
inline constexpr int64_t kCommitScratchElements = int64_t{1} << 20;
// The flat buffer is cut into pieces of at most so many elements, each of which
// the kernel is told in so many bytes
// (parallel/cuda/kernels/flat_buffer_body.h).
inline constexpr int kMostPieceElements = 4096;
inline constexpr int kPieceBytes = 16;

}  // namespace headroom
