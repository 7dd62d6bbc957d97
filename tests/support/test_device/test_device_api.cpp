#include "tests/support/test_device/test_device_api.h"

#include <string>

#include "tests/support/test_device/operators.h"
#include "tests/support/test_device/page_locks.h"
#include "tests/support/test_device/test_communicator.h"
#include "tests/support/test_device/test_graph.h"
#include "worker/kernels/cpu/device_batch_norm.h"
#include "worker/loss/device_loss.h"

namespace headroom {
namespace {

class TestDeviceApi final : public devices::DeviceApi {
 public:
  c10::DeviceType device_type() const override {
    return c10::DeviceType::PrivateUse1;
  }
  int device_count() const override { return TestDeviceMemory::kDevices; }
  devices::DeviceInfo describe(int device) const override {
    devices::DeviceInfo info;
    info.index = device;
    info.uuid = "GPU-test-" + std::to_string(device);
    info.name = "test device";
    info.total_bytes = TestDeviceMemory::kBytes;
    return info;
  }
  int64_t free_bytes(int device) const override {
    TestDeviceMemory& memory = TestDeviceMemory::of(device);
    memory.open();
    return TestDeviceMemory::kBytes - memory.own_bytes();
  }
  std::optional<devices::DeviceUse> use_of(int device) const override {
    const int64_t own = TestDeviceMemory::of(device).own_bytes();
    return devices::DeviceUse{own, own};
  }
  devices::DeviceMemory& memory(int device) override {
    return TestDeviceMemory::of(device);
  }
  devices::DeviceKernels& kernels() override { return kernels_; }
  std::shared_ptr<void> lock_pages(int64_t bytes) override {
    return lock_test_pages(bytes);
  }
  // Its first stream is as good as any.
  void leave_default_stream(int) override {}
  std::unique_ptr<devices::DeviceGraph> make_graph(int device) override {
    return std::make_unique<TestGraph>(device);
  }
  std::shared_ptr<collectives::DeviceRanks> connect_ranks(
      collectives::Communicator& world,
      const devices::DeviceCommunicatorOptions& options) override {
    return connect_test_ranks(world, describe(options.device), options);
  }
  void abort_communicators() override { abort_test_communicators(); }

 private:
  EmulatedKernels kernels_;
};

}  // namespace

devices::DeviceApi& test_device_api() {
  static auto* const api = [] {
    install_test_device();
    prepare_test_communicators();
    return new TestDeviceApi;
  }();
  return *api;
}

devices::ComputeDevice test_compute_device(int index) {
  devices::DeviceApi& api = test_device_api();
  kernels::set_map_kernels(api.device_type(), &api.kernels());
  loss::set_loss_kernels(api.device_type(), &api.kernels());
  return {api, index};
}

}  // namespace headroom
