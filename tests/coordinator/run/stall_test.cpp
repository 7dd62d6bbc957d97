#include "coordinator/run/stall.h"

#include <gtest/gtest.h>

namespace headroom::coordinator {
namespace {

TEST(Stall, TenSecondsOrFiveMediansWhicheverIsLonger) {
  EXPECT_EQ(why_stuck(10'000, 20, 3), std::nullopt);
  EXPECT_EQ(why_stuck(10'001, 20, 3),
            "was stuck in step 3: no sign of life for 10001 ms while it waited "
            "for nobody");
  EXPECT_EQ(why_stuck(20'000, 4'000, 3), std::nullopt);
  EXPECT_NE(why_stuck(20'001, 4'000, 3), std::nullopt);
}

}  // namespace
}  // namespace headroom::coordinator
