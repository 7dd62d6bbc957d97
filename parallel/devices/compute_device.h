// ComputeDevice: where one rank computes, chosen once, when the rank starts,
// and handed on from there. A default ComputeDevice is the CPU, which needs no
// plugin.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>

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

 private:
  c10::Device device_{c10::kCPU};
  DeviceApi* api_ = nullptr;
};

}  // namespace headroom::devices
