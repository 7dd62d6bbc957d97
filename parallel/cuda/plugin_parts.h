// The parts of DeviceApi over CUDA and NCCL, which plugin.cpp combines.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/devices/device_api.h"
#include "worker/kernels/device_kernels.h"

namespace headroom::cuda {

// Number of devices; 0 without a driver. This function and the next two do not
// create a CUDA context.
int cuda_device_count();

// Throws Error that lists the range of devices if the device does not exist.
void check_cuda_device(int device);

// Throws like check_cuda_device() if the device does not exist.
devices::DeviceInfo describe_cuda_device(int device);

// Formats 16 bytes as "GPU-00112233-4455-6677-8899-aabbccddeeff".
std::string uuid_text(const char (&bytes)[16]);

// "0000:1b:00.0".
std::string bus_address_text(int domain, int bus, int device);

// See DeviceApi::failure().
std::optional<std::string> cuda_device_failure(int device);

// Makes one DeviceMemory for each device, in order, which counts the
// allocations of LibTorch's caching allocator from this call on. The objects
// exist until the process ends, because the allocator calls them as long as
// there are tensors. Call this function once. Initialises CUDA, but creates no
// context.
std::vector<devices::DeviceMemory*> make_cuda_memories(
    const devices::HostServices& services);

// The kernels of parallel/cuda/kernels; valid until the process ends.
kernels::DeviceKernels& cuda_kernels();

// A DeviceGraph over LibTorch's CUDAGraph. REQUIRES: the thread's stream of the
// device is not the default one.
std::unique_ptr<devices::DeviceGraph> make_cuda_graph(int device);

}  // namespace headroom::cuda
