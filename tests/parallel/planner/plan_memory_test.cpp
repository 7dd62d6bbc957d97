#include "parallel/planner/plan_memory.h"

#include <gtest/gtest.h>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

configs::RunConfig small_request() {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.image_height = config.image_width = 64;
  config.global_batch_size = 4;
  return config;
}

// A failed prediction is not stored: the same request is predicted again.
TEST(PlanMemory, APredictionThatFailedIsNotKept) {
  configs::RunConfig config = small_request();
  std::vector<layers::LayerCost> layers =
      layers::layer_costs(layers::load_model_table(config.cfg));
  const plan::Plan plan = *choose_plan(config, 1, layers).plan;
  config.memory_limit = int64_t{1} << 40;
  PlanMemory memory(layers);
  const layers::LayerCost whole = layers[3];
  layers[3].inputs = {20};  // a later layer, whose output does not exist yet
  EXPECT_ANY_THROW(memory.fit(config, plan));
  EXPECT_ANY_THROW(memory.fit(config, plan));
  layers[3] = whole;
  EXPECT_EQ(memory.fit(config, plan), PlanMemory(layers).fit(config, plan));
}

TEST(PlanMemory, ACutThatFailedIsNotKept) {
  const configs::RunConfig config = small_request();
  const std::vector<layers::LayerCost> layers =
      layers::layer_costs(layers::load_model_table(config.cfg));
  plan::Plan plan = *choose_plan(config, 1, layers).plan;
  plan.layout.pipeline_parallel_size = 1000;  // more stages than layers
  PlanMemory memory(layers);
  EXPECT_THROW(memory.stage_begins(config, plan), CheckFailure);
  EXPECT_THROW(memory.stage_begins(config, plan), CheckFailure);
}

}  // namespace
}  // namespace headroom::planner
