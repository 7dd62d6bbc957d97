// ComputeDevice: where one rank computes, chosen once, when the rank starts,
// and handed on from there. A default ComputeDevice is the CPU, which needs no
// plugin.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/devices/device_api.h"
#include "parallel/devices/device_kernels.h"

namespace headroom::devices {

class ComputeDevice {
 public:
  ComputeDevice() = default;
  // REQUIRES: 0 <= index < api.device_count(), which outlives this.
  ComputeDevice(DeviceApi& api, int index);

  bool is_cpu() const { return api_ == nullptr; }
  c10::Device device() const { return device_; }
  DeviceApi* api() const { return api_; }  // null on the CPU
  at::TensorOptions options(at::ScalarType type) const {
    return at::TensorOptions(device_).dtype(type);
  }

  // The meter of its tensors; on the CPU the calling thread's account
  // (counting_allocator.h).
  activations::MemoryMeter& memory() const;
  // Null on the CPU.
  DeviceKernels* kernels() const;

  // A CPU tensor's copy there, for which the host does not wait; a tensor that
  // is there already is returned itself.
  at::Tensor upload(const at::Tensor& tensor) const;
  // The same into a tensor of the device, which takes no memory there.
  void upload_into(const at::Tensor& tensor, const at::Tensor& target) const;

 private:
  c10::Device device_{c10::kCPU};
  DeviceApi* api_ = nullptr;
};

// Host memory that a device copies from by itself, while
// both sides compute.
//
// Locking pages takes the host milliseconds and waits for the device, so
// buffers are kept and used again: there are never more of them than were held
// at one time. A buffer goes back when its last holder releases it, which may
// be after this object is gone.
//
// Errors: Error (exit 5) where the host has no more pages to lock.
class PageLockedBuffers {
 public:
  explicit PageLockedBuffers(DeviceApi& api);

  // A buffer of at least `bytes`, aligned for any type.
  std::shared_ptr<void> take(int64_t bytes);

  // Bytes of all buffers, held and free.
  int64_t locked_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Loads libheadroom_cuda.so into this process, in the main thread, before any
// other. From then on CUDA numbers cards in the order of the PCI bus, as
// nvidia-smi and parallel/nvml do.
//
// It must come before LibTorch is first used: at::manual_seed or a backward
// before it caches that there is no CUDA for ever. Loading takes about a second
// and no device; so programs load it only when a device was asked for.

struct DevicePlugin {
  DeviceApi* api = nullptr;  // lives until the process ends
  std::string reason;        // why there is none
};

// The plugin beside the running program, where the build puts it, or the one
// that HEADROOM_DEVICE_PLUGIN names: tests bring a device of their own
// (tests/support/test_device).
std::string device_plugin_path();

DevicePlugin load_device_plugin(const std::string& path);

}  // namespace headroom::devices
