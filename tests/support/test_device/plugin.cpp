// The test device as a plugin. If HEADROOM_DEVICE_PLUGIN names it, programs
// load it instead of libheadroom_cuda.so and train on it as on a card.
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/test_device_api.h"

extern "C" headroom::devices::DeviceApi* headroom_device_api(
    int version, const headroom::devices::HostServices* services) {
  if (version != headroom::devices::kDeviceApiVersion) return nullptr;
  headroom::TestDeviceMemory::set_services(*services);
  return &headroom::test_device_api();
}

// Counts, since the last call, the pieces of work that were queued, and the
// copies for which the host waited.
extern "C" void headroom_test_launches(int64_t* launches, int64_t* reads) {
  *launches = *reads = 0;
  for (const auto& [name, count] : headroom::take_launches()) {
    *(name == "read" ? reads : launches) += count;
  }
}
