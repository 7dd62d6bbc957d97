// The test device as a plugin, which HEADROOM_DEVICE_PLUGIN puts in the place
// of libheadroom_cuda.so: programs then train on it as on a card.
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/test_device_api.h"

extern "C" headroom::devices::DeviceApi* headroom_device_api(
    int version, const headroom::devices::HostServices* services) {
  if (version != headroom::devices::kDeviceApiVersion) return nullptr;
  headroom::TestDeviceMemory::set_services(*services);
  return &headroom::test_device_api();
}

// Since the last call: pieces of work that the device was given, and of these
// the copies for which the host waited.
extern "C" void headroom_test_launches(int64_t* launches, int64_t* reads) {
  *launches = *reads = 0;
  for (const auto& [name, count] : headroom::take_launches()) {
    *(name == "read" ? reads : launches) += count;
  }
}
