// CudaDeviceMemory: LibTorch's caching allocator of one device as a
// DeviceMemory.
//
// Ownership: one object per device, until the process ends: the allocator calls
// back as long as there are tensors.
// Threads: any.
#pragma once

#include <vector>

#include "parallel/devices/device_api.h"

namespace headroom::cuda {

// One for each device, in order; counts from now on. Called once. Initialises
// CUDA; no context is created.
std::vector<devices::DeviceMemory*> make_cuda_memories(
    const devices::HostServices& services);

}  // namespace headroom::cuda
