// The test device as a plugin, which HEADROOM_DEVICE_PLUGIN puts in the place
// of libheadroom_cuda.so: programs then train on it as on a card.
#include "tests/support/test_device/test_device_api.h"

extern "C" headroom::devices::DeviceApi* headroom_device_api(
    int version, const headroom::devices::HostServices* services) {
  if (version != headroom::devices::kDeviceApiVersion) return nullptr;
  headroom::TestDeviceMemory::set_services(*services);
  return &headroom::test_device_api();
}
