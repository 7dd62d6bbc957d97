// How a flat buffer is cut for its kernel.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/cuda/kernels/flat_buffer_body.h"
#include "parallel/devices/device_kernels.h"

namespace headroom::cuda {

// Pieces that tile [0, size) in order, each in one range or in none.
// REQUIRES: as DeviceKernels::make_optimizer (checked).
std::vector<FlatBufferPiece> flat_buffer_pieces(
    std::span<const devices::FlatBufferRange> ranges, int64_t size);

}  // namespace headroom::cuda
