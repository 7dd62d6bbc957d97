#include "parallel/planner/other_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/plan_time.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

configs::RunConfig config_of(int64_t batch) {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.synthetic_input = true;
  config.image_height = config.image_width = 128;
  config.global_batch_size = batch;
  return config;
}

// The costs that are listed for a layout equal those of a plan for this layout.
TEST(OtherLayouts, CostWhatTheirOwnPlansCost) {
  const configs::RunConfig config = config_of(16);
  const std::vector<layers::LayerCost> layers = model_layers(config);
  const plan::Plan plan = plan_or_throw(config, 4, layers);
  const std::vector<OtherLayout> others = other_layouts(config, plan, layers);
  EXPECT_EQ(others.size(), plan::layouts_of(4).size() - 1);
  for (const OtherLayout& other : others) {
    EXPECT_NE(other.layout, plan.layout);
    ASSERT_TRUE(other.cost) << other.refusal;
    configs::RunConfig asked = config;
    asked.layout = other.layout;
    const plan::Plan own = plan_or_throw(asked, 4, layers);
    EXPECT_EQ(other.cost->fullest_rank_bytes, fullest_rank_bytes(own));
    ASSERT_TRUE(other.cost->relative_time);
    EXPECT_DOUBLE_EQ(
        *other.cost->relative_time * plan_time(config, plan, layers).total(),
        plan_time(asked, own, layers).total());
    EXPECT_THAT(answer_text(other), HasSubstr("in the fullest process"));
  }
}

TEST(OtherLayouts, RefusalsHaveTheirReasonAndNoCost) {
  configs::RunConfig config = config_of(16);
  const std::vector<layers::LayerCost> layers = model_layers(config);
  const plan::Plan plan = plan_or_throw(config, 16, layers);
  const std::vector<OtherLayout> others = other_layouts(config, plan, layers);
  const auto sixteen_strips =
      std::ranges::find_if(others, [](const OtherLayout& other) {
        return other.layout.spatial_parallel_size == 16;
      });
  ASSERT_NE(sixteen_strips, others.end());
  EXPECT_FALSE(sixteen_strips->cost);
  EXPECT_THAT(answer_text(*sixteen_strips), HasSubstr("refused: "));
}

// The time model is only valid for processor cores.
TEST(OtherLayouts, OfCardsHaveBytesAndNoTime) {
  configs::RunConfig config = config_of(16);
  const std::vector<layers::LayerCost> layers = model_layers(config);
  plan::Plan plan = plan_or_throw(config, 2, layers);
  plan.backend = plan::Backend::kNccl;
  for (const OtherLayout& other : other_layouts(config, plan, layers)) {
    ASSERT_TRUE(other.cost);
    EXPECT_FALSE(other.cost->relative_time);
    EXPECT_THAT(answer_text(other), Not(HasSubstr("time")));
  }
}

TEST(OtherLayouts, OfManyProcessesHaveNoCost) {
  const configs::RunConfig config = config_of(2048);
  const std::vector<layers::LayerCost> layers = model_layers(config);
  const plan::Plan plan = plan_or_throw(config, 128, layers);
  for (const OtherLayout& other : other_layouts(config, plan, layers)) {
    EXPECT_FALSE(other.cost);
    EXPECT_TRUE(answer_text(other) == "possible" || !other.refusal.empty());
  }
}

}  // namespace
}  // namespace headroom::planner
