#include "tests/support/test_device/test_device_api.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/test_device/operators.h"
#include "tests/support/test_device/page_locks.h"
#include "tests/support/test_device/streams.h"
#include "tests/support/test_device/test_communicator.h"
#include "tests/support/test_device/test_graph.h"
#include "worker/kernels/cpu/kernel_registration.h"

namespace headroom {
namespace {

// The cards that the driver lists, by number: those named in the file
// HEADROOM_TEST_CARDS when the process starts, or all. As with CUDA a card's
// index is its place in this list.
const std::vector<int>& listed_cards() {
  static const auto* const cards = [] {
    auto* const found = new std::vector<int>;
    const char* const path = std::getenv("HEADROOM_TEST_CARDS");
    std::ifstream file(path == nullptr ? "" : path);
    for (int number = 0; file >> number;) found->push_back(number);
    while (!file.is_open() && std::ssize(*found) < TestDeviceMemory::kDevices) {
      found->push_back(static_cast<int>(found->size()));
    }
    return found;
  }();
  return *cards;
}

class TestDeviceApi final : public devices::DeviceApi {
 public:
  c10::DeviceType device_type() const override {
    return c10::DeviceType::PrivateUse1;
  }
  int device_count() const override {
    return static_cast<int>(listed_cards().size());
  }
  devices::DeviceInfo describe(int device) const override {
    const int number = listed_cards().at(static_cast<size_t>(device));
    devices::DeviceInfo info;
    info.index = device;
    info.uuid = "GPU-test-" + std::to_string(number);
    // The name of a card of compute capability 7.5, in whose place it is.
    const char* const card = std::getenv("HEADROOM_TEST_CARD_NAME");
    info.name = card == nullptr ? "test device" : card;
    if (card != nullptr) info.compute_capability = 75;
    info.bus_address = "0000:0" + std::to_string(number + 1) + ":00.0";
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
  kernels::DeviceKernels& kernels() override { return kernels_; }
  std::shared_ptr<void> lock_pages(int64_t bytes) override {
    return lock_test_pages(bytes);
  }
  // Graphs of the test device can be captured on its default stream.
  void leave_default_stream(int) override {}
  std::unique_ptr<devices::DeviceGraph> make_graph(int device) override {
    return std::make_unique<TestGraph>(device);
  }
  std::shared_ptr<collectives::DeviceRanks> connect_ranks(
      collectives::Communicator& world,
      const devices::DeviceCommunicatorOptions& options) override {
    return connect_test_ranks(world, describe(options.device), options);
  }
  std::optional<std::string> failure(int device) const override {
    return TestStreams::instance().failure(
        static_cast<c10::DeviceIndex>(device));
  }
  void break_device(int device, BreakIn where) override {
    const auto trap = [](const c10::Stream& stream) {
      TestStreams::instance().break_on(stream);
    };
    if (where == BreakIn::kNextCollective) {
      before_next_test_operation(trap);
    } else {
      trap(TestStreams::instance().current(test_device(device)));
    }
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
  kernels::set_device_kernels(api.device_type(), &api.kernels());
  return {api, index};
}

}  // namespace headroom
