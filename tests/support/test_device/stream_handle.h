// What tests/support/nccl_shim uses instead of CUDA: the native handle of a
// stream, and device memory outside of LibTorch's allocator.
#pragma once

#include <cstdint>

namespace headroom {

// A cudaStream_t of the test device.
struct TestStreamHandle {
  int device;
  int64_t stream;
  // Queues work(context) on the stream.
  void (*give)(const TestStreamHandle*, void (*work)(void*), void* context);
  // The address at which a kernel accesses the device's memory.
  void* (*host_view)(const void* address);
};

struct TestDeviceHooks {
  int (*current_device)();
  // Returns false if the device is full.
  bool (*take)(int device, int64_t bytes);
  void (*give_back)(int device, int64_t bytes);
};

}  // namespace headroom
