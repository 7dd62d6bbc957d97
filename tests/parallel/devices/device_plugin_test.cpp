#include "parallel/devices/compute_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace headroom::devices {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(DevicePlugin, IsLocatedBesideTheProgram) {
  EXPECT_THAT(device_plugin_path(), EndsWith("/tests/libheadroom_cuda.so"));
}

// By default, CUDA would number the fastest card 0, and not the first card of
// nvidia-smi.
TEST(DevicePlugin, CudaNumbersCardsAsNvidiaSmiDoes) {
  unsetenv("CUDA_DEVICE_ORDER");
  load_device_plugin("/nowhere/libheadroom_cuda.so");
  ASSERT_NE(std::getenv("CUDA_DEVICE_ORDER"), nullptr);
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
}

TEST(DevicePlugin, ReportsThatThereIsNone) {
  const DevicePlugin plugin =
      load_device_plugin("/nowhere/libheadroom_cuda.so");
  EXPECT_EQ(plugin.api, nullptr);
  EXPECT_EQ(
      plugin.reason,
      "this build has no plugin for devices: no /nowhere/libheadroom_cuda.so");
}

TEST(DevicePlugin, ReportsWhyAFileCannotBeLoaded) {
  // This source file is not a library.
  const DevicePlugin text = load_device_plugin(__FILE__);
  EXPECT_EQ(text.api, nullptr);
  EXPECT_THAT(text.reason, HasSubstr(__FILE__));
  // The C++ library does not have the factory function.
  const DevicePlugin other = load_device_plugin(HEADROOM_OTHER_LIBRARY);
  EXPECT_EQ(other.api, nullptr);
  EXPECT_THAT(other.reason, HasSubstr(kDeviceApiFactory));
}

}  // namespace
}  // namespace headroom::devices
