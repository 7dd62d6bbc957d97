// The test device's guard: devices, streams and events for LibTorch, and the
// hooks of autograd.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include "tests/support/test_device/operators.h"
#include "tests/support/test_device/streams.h"
#include "tests/support/test_device/test_device_memory.h"
#include "tests/support/test_device/test_graph.h"

namespace headroom {
namespace {

constexpr auto kGuarded = c10::DeviceType::PrivateUse1;

// As CUDA: a new thread uses the first device by default.
thread_local c10::DeviceIndex current_index = 0;

// A stream or an event creates the device's context if there is none.
void open(c10::DeviceIndex device) { TestDeviceMemory::of(device).open(); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kGuarded; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kGuarded, current_index}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < deviceCount(), "no test device ", device);
    if (device.has_index()) current_index = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current_index = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return TestStreams::instance().current(whole(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    open(whole(device).index());
    return TestStreams::instance().make(whole(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return TestStreams::instance().exchange(stream);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return TestStreams::instance().native_handle(stream);
  }

  using Moment = TestStreams::Moment;
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    open(stream.device_index());
    if (*event == nullptr) *event = new Moment;
    *static_cast<Moment*>(*event) = TestStreams::instance().moment(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    open(stream.device_index());
    TestStreams::instance().wait(stream, *static_cast<Moment*>(event));
  }
  // As CUDA does, this queries the thread's current device, even for an event
  // of another device.
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    open(current_index);
    return TestStreams::instance().is_past(*static_cast<Moment*>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    open(current_index);
    refuse_while_captured();
    TestStreams::instance().finish(*static_cast<Moment*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Moment*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override {
    open(stream.device_index());
    return TestStreams::instance().is_past(
        TestStreams::instance().moment(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    open(stream.device_index());
    refuse_while_captured();
    TestStreams::instance().finish(stream);
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    open(device);
    refuse_while_captured();
    TestStreams::instance().finish_device(device);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return TestDeviceMemory::kDevices;
  }

 private:
  static c10::Device whole(c10::Device device) {
    return device.has_index() ? device : c10::Device(kGuarded, current_index);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Autograd calls these hooks of an accelerator.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return TestDeviceMemory::kDevices;
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_index; }
};

}  // namespace

void install_test_guard() {
  static const bool registered = [] {
    c10::register_privateuse1_backend("testdevice");
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    return true;
  }();
  static_cast<void>(registered);
}

}  // namespace headroom
