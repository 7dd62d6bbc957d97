#include "parallel/predict/time_model.h"

#include <gtest/gtest.h>

namespace headroom::predict {
namespace {

TEST(Cluster, TheWheelRunsOnItsCapabilitiesAndLaterMinorVersions) {
  for (const int yes : {75, 80, 86, 89, 90, 100, 103, 120})
    EXPECT_TRUE(wheel_has_code_for(yes)) << yes;
  for (const int no : {37, 60, 70, 110}) EXPECT_FALSE(wheel_has_code_for(no));
}

TEST(Cluster, ACardAsLargeAsTheReserveHasNoRoom) {
  EXPECT_EQ(tensor_budget(kGpuContextBytes, 0), 0);
  EXPECT_EQ(tensor_budget(int64_t{8} << 30, 0) -
                tensor_budget(int64_t{8} << 30, 1 << 20),
            1 << 20);
}

// Only the context and a margin for errors of predictions are subtracted.
TEST(Cluster, ACardOfFourGibibytesHasMoreThanThreeForTensors) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_GE(tensor_budget(4 * kGiB, 0), 32 * kGiB / 10);
  EXPECT_GE(tensor_budget(80 * kGiB, 0), 75 * kGiB);
}

}  // namespace
}  // namespace headroom::predict
