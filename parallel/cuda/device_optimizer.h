// The flat buffer's kernel behind DeviceOptimizer.
//
// Ownership: holds the flat buffer's pieces on the device.
#pragma once

#include <memory>
#include <span>

#include "parallel/devices/device_kernels.h"

namespace headroom::cuda {

std::unique_ptr<devices::DeviceOptimizer> make_cuda_optimizer(
    int device, std::span<const devices::FlatBufferRange> ranges, int64_t size);

}  // namespace headroom::cuda
