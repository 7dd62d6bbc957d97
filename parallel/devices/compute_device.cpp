#include "parallel/devices/compute_device.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/plugin_library.h"
#include "parallel/base/text.h"

namespace headroom::devices {

ComputeDevice::ComputeDevice(DeviceApi& api, int index)
    : device_(api.device_type(), static_cast<c10::DeviceIndex>(index)),
      api_(&api) {
  HEADROOM_CHECK(index >= 0 && index < api.device_count(),
                 cat("device ", index, " of ", api.device_count()));
}

activations::MemoryMeter& ComputeDevice::memory() const {
  if (is_cpu()) return activations::CountingAllocator::instance();
  return api_->memory(device_.index());
}

kernels::DeviceKernels* ComputeDevice::kernels() const {
  return is_cpu() ? nullptr : &api_->kernels();
}

at::Tensor ComputeDevice::upload(const at::Tensor& tensor) const {
  if (tensor.device() == device_) return tensor;
  return kernels()->upload(tensor, device_);
}

void ComputeDevice::upload_into(const at::Tensor& tensor,
                                const at::Tensor& target) const {
  kernels()->upload_into(tensor, target);
}

struct PageLockedBuffers::State {
  explicit State(DeviceApi& given) : api(given) {}

  DeviceApi& api;
  std::mutex mutex;
  // Buffers that are not in use, by size. Guarded by `mutex`.
  std::multimap<int64_t, std::shared_ptr<void>> free;
  int64_t locked = 0;  // guarded by `mutex`
};

PageLockedBuffers::PageLockedBuffers(DeviceApi& api)
    : state_(std::make_shared<State>(api)) {}

std::shared_ptr<void> PageLockedBuffers::take(int64_t bytes) {
  State& state = *state_;
  std::shared_ptr<void> buffer;
  // Freed after the lock is released, because freeing it takes time.
  std::shared_ptr<void> too_small;
  int64_t size = bytes;
  {
    const std::lock_guard lock(state.mutex);
    auto found = state.free.lower_bound(bytes);
    if (found == state.free.end() && !state.free.empty()) {
      // No free buffer is large enough: replace the largest by a larger one.
      found = std::prev(state.free.end());
    }
    if (found != state.free.end()) {
      if (found->first >= bytes) {
        size = found->first;
        buffer = std::move(found->second);
      } else {
        state.locked -= found->first;
        too_small = std::move(found->second);
      }
      state.free.erase(found);
    }
  }
  too_small.reset();
  if (buffer == nullptr) {
    buffer = state.api.lock_pages(bytes);
    const std::lock_guard lock(state.mutex);
    state.locked += size;
  }
  void* const address = buffer.get();
  return {address,
          [size, kept = state_, held = std::move(buffer)](void*) mutable {
            const std::lock_guard lock(kept->mutex);
            kept->free.emplace(size, std::move(held));
          }};
}

int64_t PageLockedBuffers::locked_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->locked;
}

namespace {

MemoryCategory category_of(int64_t bytes) {
  return MemoryCategoryScope::of_device(bytes);
}

}  // namespace

std::string device_plugin_path() {
  return plugin_path(kDevicePluginVariable, "libheadroom_cuda.so");
}

DevicePlugin load_device_plugin(const std::string& path) {
  static constexpr HostServices kServices = {
      &category_of, &PeerWait::begin, &PeerWait::end, &PeerNews::a_peer_works};
  // CUDA puts the fastest card first by default, unlike nvidia-smi and NVML.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/1);
  if (!plugin_exists(path)) {
    return {nullptr, "this build has no plugin for devices: no " + path};
  }
  const auto plugin = open_plugin<DeviceApiFactory>(path, kDeviceApiFactory);
  if (plugin.factory == nullptr) return {nullptr, plugin.error};
  DeviceApi* const api = plugin.factory(kDeviceApiVersion, &kServices);
  if (api == nullptr) {
    return {nullptr, path + " is of another version than this program"};
  }
  return {api, ""};
}

}  // namespace headroom::devices
