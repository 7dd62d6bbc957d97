#include "parallel/plan/plan_json.h"

#include <gtest/gtest.h>

namespace headroom::plan {
namespace {

TEST(StageBegins, RisingFromLayerZeroOnePerStage) {
  EXPECT_EQ(stage_begins_error({0}, 1), std::nullopt);
  EXPECT_EQ(stage_begins_error({0, 1, kMaxLayers - 1}, 3), std::nullopt);
}

TEST(StageBegins, AnythingElseIsRefusedWithBothNumbers) {
  EXPECT_EQ(stage_begins_error({}, 1), "0 stages for a pipeline axis of 1");
  EXPECT_EQ(stage_begins_error({0, 4}, 3), "2 stages for a pipeline axis of 3");
  EXPECT_EQ(stage_begins_error({1}, 1),
            "the first stage begins at layer 1, not at 0");
  EXPECT_EQ(stage_begins_error({0, 4, 4}, 3),
            "stage 2 begins at layer 4, the one before at 4");
  EXPECT_EQ(stage_begins_error({0, -4}, 2),
            "stage 1 begins at layer -4, the one before at 0");
  EXPECT_EQ(stage_begins_error({0, kMaxLayers}, 2),
            "stage 1 begins at layer 100000, the one before at 0");
}

}  // namespace
}  // namespace headroom::plan
