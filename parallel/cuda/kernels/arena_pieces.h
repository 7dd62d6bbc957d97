// How an arena is cut for its kernel: pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/cuda/kernels/arena_body.h"
#include "parallel/devices/device_kernels.h"

namespace headroom::cuda {

// Pieces that tile [0, size) in order, each in one range or in none.
// REQUIRES: as DeviceKernels::make_optimizer (checked).
std::vector<ArenaPiece> arena_pieces(
    std::span<const devices::ArenaRange> ranges, int64_t size);

}  // namespace headroom::cuda
