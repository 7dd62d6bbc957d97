#include "tests/support/test_device/test_communicator.h"

#include "tests/support/test_device/operators.h"
#include "tests/support/test_device/test_device_memory.h"

#ifdef HEADROOM_TEST_NCCL

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include "parallel/cuda/nccl_communicator.h"
#include "parallel/cuda/nccl_connection.h"
#include "tests/support/test_device/stream_handle.h"

namespace headroom {

void prepare_test_communicators() {
  // The function is looked up by name: if a test runs on a real card, NCCL
  // itself is loaded, which has no such function, and the program must still
  // start.
  const auto set_hooks = reinterpret_cast<void (*)(const TestDeviceHooks*)>(
      dlsym(RTLD_DEFAULT, "headroom_nccl_shim_hooks"));
  TORCH_CHECK(set_hooks != nullptr,
              "the test device found NCCL in the place of its stand-in");
  cuda::prepare_nccl();
  const TestDeviceHooks hooks = {
      [] {
        return static_cast<int>(
            c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)
                ->getDevice()
                .index());
      },
      [](int device, int64_t bytes) {
        return TestDeviceMemory::of(device).take_outside(bytes);
      },
      [](int device, int64_t bytes) {
        TestDeviceMemory::of(device).give_back_outside(bytes);
      }};
  set_hooks(&hooks);
}

std::shared_ptr<collectives::DeviceRanks> connect_test_ranks(
    collectives::Communicator& world, const devices::DeviceInfo& device,
    const devices::DeviceCommunicatorOptions& options) {
  return cuda::make_nccl_ranks(
      world,
      {test_device(options.device), device.uuid,
       TestDeviceMemory::host_services(), std::make_shared<int32_t>()},
      options);
}

void abort_test_communicators() { cuda::abort_nccl_communicators(); }

void before_next_test_operation(std::function<void(const c10::Stream&)> hook) {
  cuda::before_next_operation(std::move(hook));
}

}  // namespace headroom

#else

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"
#include "tests/support/test_device/streams.h"

namespace headroom {

void prepare_test_communicators() {}

// If tensors go through the host, this allocates the device memory that NCCL
// would use.
std::shared_ptr<collectives::DeviceRanks> connect_test_ranks(
    collectives::Communicator&, const devices::DeviceInfo& device,
    const devices::DeviceCommunicatorOptions& options) {
  HEADROOM_CHECK(!options.behind_each, "the host's ranks have no stream");
  constexpr int64_t kBuffers = 1 << 20;
  TestDeviceMemory::of(device.index).take_outside(kBuffers);
  return nullptr;
}

void abort_test_communicators() {}

void before_next_test_operation(std::function<void(const c10::Stream&)> hook) {
  hook(TestStreams::instance().current(
      c10::Device(c10::DeviceType::PrivateUse1,
                  c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)
                      ->getDevice()
                      .index())));
}

}  // namespace headroom

#endif
