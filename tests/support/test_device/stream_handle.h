// The test device's replacement for CUDA in tests/support/nccl_shim: a stream's
// native handle, and the device's memory beside LibTorch's allocator.
#pragma once

#include <cstdint>

namespace headroom {

// A cudaStream_t of the test device.
struct TestStreamHandle {
  int device;
  int64_t stream;
  // Does work(context) in the stream's order.
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
