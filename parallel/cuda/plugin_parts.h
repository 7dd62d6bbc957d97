// What plugin.cpp puts together: each part of DeviceApi over CUDA and NCCL.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/devices/device_api.h"
#include "parallel/devices/device_kernels.h"

namespace headroom::cuda {

// How many devices there are; 0 without a driver. Like the two below, it
// creates no context.
int cuda_device_count();

// Throws Error that says what there is, unless the device exists.
void check_cuda_device(int device);

// Checks the device first.
devices::DeviceInfo describe_cuda_device(int device);

// "GPU-00112233-4455-6677-8899-aabbccddeeff" of its 16 bytes.
std::string uuid_text(const char (&bytes)[16]);

// "0000:1b:00.0".
std::string bus_address_text(int domain, int bus, int device);

// As DeviceApi::failure.
std::optional<std::string> cuda_device_failure(int device);

// LibTorch's caching allocator as one DeviceMemory for each device, in order,
// which counts from now on. They live until the process ends: the allocator
// calls back as long as there are tensors. Called once. Initialises CUDA, but
// creates no context.
std::vector<devices::DeviceMemory*> make_cuda_memories(
    const devices::HostServices& services);

// The kernels of parallel/cuda/kernels; they live until the process ends.
devices::DeviceKernels& cuda_kernels();

// The flat buffer's kernel, which holds the buffer's pieces on the device.
std::unique_ptr<devices::DeviceOptimizer> make_cuda_optimizer(
    int device, std::span<const devices::FlatBufferRange> ranges, int64_t size);

// LibTorch's CUDAGraph.
// REQUIRES: the thread's stream of the device is not the default one.
std::unique_ptr<devices::DeviceGraph> make_cuda_graph(int device);

}  // namespace headroom::cuda
