#include "coordinator/run/membership.h"

#include <gtest/gtest.h>

namespace headroom::coordinator {
namespace {

TEST(Stall, TenSecondsOrFiveMediansWhicheverIsLonger) {
  EXPECT_EQ(stall_error(10'000, 20, 3), std::nullopt);
  EXPECT_EQ(stall_error(10'001, 20, 3),
            "was stuck in step 3: no sign of life for 10001 ms while it waited "
            "for nobody");
  EXPECT_EQ(stall_error(20'000, 4'000, 3), std::nullopt);
  EXPECT_NE(stall_error(20'001, 4'000, 3), std::nullopt);
}

}  // namespace
}  // namespace headroom::coordinator
