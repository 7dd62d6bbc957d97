// ComputeDevice: the device of one rank. It is chosen once, when the rank
// starts, and passed on. A default ComputeDevice is the CPU, which needs no
// plugin.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/devices/device_api.h"
#include "worker/kernels/device_kernels.h"

namespace headroom::devices {

class ComputeDevice {
 public:
  ComputeDevice() = default;
  // REQUIRES: 0 <= index < api.device_count(); `api` outlives this object.
  ComputeDevice(DeviceApi& api, int index);

  bool is_cpu() const { return api_ == nullptr; }
  c10::Device device() const { return device_; }
  DeviceApi* api() const { return api_; }  // nullptr on the CPU
  at::TensorOptions options(at::ScalarType type) const {
    return at::TensorOptions(device_).dtype(type);
  }

  // Counts and limits the memory of the device's tensors. On the CPU it refers
  // to the counters that the calling thread uses (counting_allocator.h).
  activations::MemoryMeter& memory() const;
  // Returns nullptr on the CPU.
  kernels::DeviceKernels* kernels() const;

  // Copies a CPU tensor to the device, without waiting for the copy. A tensor
  // that is already on the device is returned unchanged.
  at::Tensor upload(const at::Tensor& tensor) const;
  // Copies into an existing tensor of the device, without allocating device
  // memory.
  void upload_into(const at::Tensor& tensor, const at::Tensor& target) const;

 private:
  c10::Device device_{c10::kCPU};
  DeviceApi* api_ = nullptr;
};

// PageLockedBuffers: host memory with locked pages, from which a device copies
// by itself while host and device compute.
//
// Locking pages takes milliseconds and waits for the device, so buffers are
// kept and used again. There are never more buffers than were in use at the
// same time. A buffer is free again when its last holder releases it, which may
// be after this object is destroyed.
//
// Errors: Error (exit 5) if the host cannot lock more pages.
class PageLockedBuffers {
 public:
  explicit PageLockedBuffers(DeviceApi& api);

  // Returns a buffer of at least `bytes`, aligned for any type.
  std::shared_ptr<void> take(int64_t bytes);

  // Bytes of all buffers, in use and free.
  int64_t locked_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

struct DevicePlugin {
  // nullptr if there is no plugin; valid until the process ends
  DeviceApi* api = nullptr;
  std::string reason;  // why `api` is nullptr
};

// Path of the plugin: the value of HEADROOM_DEVICE_PLUGIN if it is set, else
// the plugin beside the running program, where the build puts it. Tests use
// their own plugin (tests/support/test_device).
std::string device_plugin_path();

// Loads the plugin at `path` into this process, in the main thread, before
// other threads start. From then on CUDA numbers cards in the order of the PCI
// bus, as nvidia-smi and parallel/nvml do.
//
// Call it before any use of LibTorch: an earlier at::manual_seed or backward
// would permanently cache that there is no CUDA. Loading takes about a second
// even if no device is used, so programs load the plugin only if a device was
// requested.
DevicePlugin load_device_plugin(const std::string& path);

}  // namespace headroom::devices
