#include "parallel/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/plan_time.h"

namespace headroom::planner {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

configs::RunConfig request(int64_t batch, int64_t image, int64_t limit) {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.image_height = config.image_width = image;
  config.global_batch_size = batch;
  config.memory_limit = limit;
  return config;
}

std::vector<layers::LayerCost> layers_of(const configs::RunConfig& config) {
  return layers::layer_costs(layers::load_model_table(config.cfg));
}

PlanDecision decide(const configs::RunConfig& config, int world_size) {
  return choose_plan(config, world_size, layers_of(config));
}

int64_t bytes_of(const plan::Plan& plan) {
  return *std::ranges::max_element(plan.predicted_peak_bytes);
}

TEST(ChooseLayout, DataWhereThatFitsAsItIs) {
  const PlanDecision decision = decide(request(32, 320, 8192 * kMiB), 4);
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(plan::to_string(decision.plan->layout),
            "data=4,pipeline=1,spatial=1");
  EXPECT_THAT(decision.reason, HasSubstr("chosen: 32 images over data 4"));
}

// Four ranks cannot share a batch of a single image by samples.
TEST(ChooseLayout, OneLargeImageIsSplitByRows) {
  const configs::RunConfig config = request(1, 2048, 600 * kMiB);
  const PlanDecision decision = decide(config, 4);
  ASSERT_TRUE(decision.plan) << decision.reason;
  EXPECT_EQ(decision.plan->layout.data_parallel_size, 1);
  EXPECT_GT(decision.plan->layout.spatial_parallel_size, 1);
  EXPECT_LE(bytes_of(*decision.plan), config.memory_limit);
  EXPECT_THAT(decision.reason, HasSubstr("not fit"));
}

TEST(ChooseLayout, TheFastestOfThoseThatFitIsTaken) {
  for (const int64_t limit : {150, 200, 300, 400, 600}) {
    const configs::RunConfig config = request(16, 640, limit * kMiB);
    const PlanDecision decision = decide(config, 4);
    if (!decision.plan) continue;
    SCOPED_TRACE(decision.reason);
    EXPECT_LE(bytes_of(*decision.plan), config.memory_limit);
    const double chosen =
        plan_time(config, *decision.plan, layers_of(config)).total();
    for (const plan::ParallelLayout& layout : plan::layouts_of(4)) {
      configs::RunConfig other = config;
      other.layout = layout;
      const PlanDecision given = decide(other, 4);
      if (!given.plan || given.plan->batch_norm_group_size !=
                             decision.plan->batch_norm_group_size) {
        continue;
      }
      EXPECT_LE(chosen,
                (1 + predict::kEqualWithin) *
                    plan_time(other, *given.plan, layers_of(config)).total())
          << plan::to_string(layout);
    }
  }
}

TEST(ChooseLayout, TheSameRequestGetsTheSamePlan) {
  const configs::RunConfig config = request(16, 640, 300 * kMiB);
  const PlanDecision decision = decide(config, 8);
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(*decide(config, 8).plan, *decision.plan);
}

TEST(ChooseLayout, ARequestedValueStays) {
  configs::RunConfig config = request(16, 640, 300 * kMiB);
  config.layout = plan::parse_layout("spatial=4");
  const PlanDecision decision = decide(config, 4);
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(decision.plan->layout.spatial_parallel_size, 4);
  EXPECT_THAT(decision.reason, HasSubstr("as asked: "));
}

TEST(ChooseLayout, NothingThatFitsIsExitThree) {
  const PlanDecision decision = decide(request(16, 640, 20 * kMiB), 4);
  EXPECT_FALSE(decision.plan);
  EXPECT_EQ(decision.exit_code, ExitCode::kNoPlan);
  EXPECT_THAT(decision.reason, HasSubstr("20971520 bytes"));
}

}  // namespace
}  // namespace headroom::planner
