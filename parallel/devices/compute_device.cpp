#include "parallel/devices/compute_device.h"

#include <string>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"

namespace headroom::devices {

ComputeDevice::ComputeDevice(DeviceApi& api, int index)
    : device_(api.device_type(), static_cast<c10::DeviceIndex>(index)),
      api_(&api) {
  HEADROOM_CHECK(index >= 0 && index < api.device_count(),
                 "device " + std::to_string(index) + " of " +
                     std::to_string(api.device_count()));
}

activations::MemoryMeter& ComputeDevice::memory() const {
  if (is_cpu()) return activations::CountingAllocator::instance();
  return api_->memory(device_.index());
}

DeviceKernels* ComputeDevice::kernels() const {
  return is_cpu() ? nullptr : &api_->kernels();
}

at::Tensor ComputeDevice::upload(const at::Tensor& tensor) const {
  if (tensor.device() == device_) return tensor;
  return kernels()->upload(tensor, device_);
}

}  // namespace headroom::devices
