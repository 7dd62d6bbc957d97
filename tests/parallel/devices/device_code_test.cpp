#include "parallel/devices/device_code.h"

#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::devices {
namespace {

TEST(DeviceCode, IsReadFromCMakesList) {
  const DeviceCode code = parse_architectures("75-real,80-real,90,120-virtual");
  EXPECT_EQ(code.machine_code, std::vector<int>({75, 80, 90}));
  EXPECT_EQ(code.ptx, std::vector<int>({90, 120}));
  for (const char* wrong : {"native", "90-", "9", "80-reel"}) {
    EXPECT_THROW(parse_architectures(wrong), Error) << wrong;
  }
}

TEST(DeviceCode, RunsOnLaterMinorVersionsAndPtxOnAllLaterCards) {
  const DeviceCode code = parse_architectures("80-real,90");
  for (const int yes : {80, 86, 89, 90, 100, 120}) {
    EXPECT_TRUE(runs_on(code, yes)) << yes;
  }
  for (const int no : {37, 70, 75}) EXPECT_FALSE(runs_on(code, no)) << no;
  const DeviceCode without_ptx = parse_architectures("80-real,90-real");
  EXPECT_TRUE(runs_on(without_ptx, 89));
  EXPECT_FALSE(runs_on(without_ptx, 100));
}

TEST(DeviceCode, ACardWithoutItIsReportedWithBothNumbers) {
  const DeviceCode code = parse_architectures("80-real,90");
  EXPECT_EQ(card_error(code, "Tesla V100", 70),
            "Tesla V100 has compute capability 7.0, but libheadroom_cuda.so "
            "has machine code for 8.0, 9.0 and PTX for 9.0 and later");
  EXPECT_EQ(card_error(code, "NVIDIA H200", 90), "");
  EXPECT_EQ(card_error({}, "test device", 0), "");
}

}  // namespace
}  // namespace headroom::devices
