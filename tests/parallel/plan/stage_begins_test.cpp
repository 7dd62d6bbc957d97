#include "parallel/plan/stage_begins.h"

#include <gtest/gtest.h>

namespace headroom::plan {
namespace {

TEST(StageBegins, RisingFromRowZeroOnePerStage) {
  EXPECT_EQ(why_not_stages({0}, 1), std::nullopt);
  EXPECT_EQ(why_not_stages({0, 1, kMaxRows - 1}, 3), std::nullopt);
}

TEST(StageBegins, AnythingElseIsSaidWithBothNumbers) {
  EXPECT_EQ(why_not_stages({}, 1), "0 stages for a pipeline axis of 1");
  EXPECT_EQ(why_not_stages({0, 4}, 3), "2 stages for a pipeline axis of 3");
  EXPECT_EQ(why_not_stages({1}, 1),
            "the first stage begins at row 1, not at 0");
  EXPECT_EQ(why_not_stages({0, 4, 4}, 3),
            "stage 2 begins at row 4, the one before at 4");
  EXPECT_EQ(why_not_stages({0, -4}, 2),
            "stage 1 begins at row -4, the one before at 0");
  EXPECT_EQ(why_not_stages({0, kMaxRows}, 2),
            "stage 1 begins at row 100000, the one before at 0");
}

}  // namespace
}  // namespace headroom::plan
