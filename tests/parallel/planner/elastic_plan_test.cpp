#include "parallel/planner/replan.h"

#include <gtest/gtest.h>

#include "configs/layers/model_table.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

class Elastic : public ::testing::Test {
 protected:
  Elastic() { config.global_batch_size = 16; }
  plan::Plan plan(int workers) {
    return plan_or_throw(config, workers, layers);
  }
  std::string layout(const plan::Plan& wanted, int workers) {
    const ElasticPlan next = plan_for_workers(config, wanted, workers, layers);
    return next.plan ? plan::to_string(next.plan->layout) : next.reason;
  }
  configs::RunConfig config;
  std::vector<layers::LayerCost> layers =
      layers::layer_costs(layers::load_model_table("yolov5n"));
};

TEST_F(Elastic, TheRunsOwnPlanWhereItsRanksAreThere) {
  const plan::Plan wanted = plan(2);
  EXPECT_EQ(*plan_for_workers(config, wanted, 2, layers).plan, wanted);
}

TEST_F(Elastic, ALayoutThatWasAskedForIsLeftAndComesBack) {
  const configs::RunConfig open = config;
  config.layout = plan::parse_layout("pipeline=2,spatial=2");
  const plan::Plan wanted = plan(4);
  EXPECT_EQ(layout(wanted, 3),
            plan::to_string(plan_or_throw(open, 3, layers).layout));
  EXPECT_EQ(layout(wanted, 1), plan::to_string(plan::ParallelLayout{}));
  EXPECT_EQ(*plan_for_workers(config, wanted, 4, layers).plan, wanted);
  EXPECT_EQ(*plan_for_workers(config, wanted, 9, layers).plan, wanted);
}

TEST_F(Elastic, WithoutALayoutAllTakePart) {
  const plan::Plan wanted = plan(2);
  EXPECT_EQ(plan_for_workers(config, wanted, 4, layers)
                .plan->layout.data_parallel_size,
            4);
}

TEST_F(Elastic, GroupsStayThoughTheShareChanges) {
  config.batch_norm_group_size = 0;
  config.global_batch_size = 24;
  const plan::Plan wanted = plan(2);
  for (const int workers : {1, 3, 4}) {
    const ElasticPlan next = plan_for_workers(config, wanted, workers, layers);
    EXPECT_EQ(next.plan->batch_norm_group_size, wanted.batch_norm_group_size)
        << workers;
  }
}

TEST_F(Elastic, MoreWorkersThanImagesStandBy) {
  config.global_batch_size = 3;
  const plan::Plan wanted = plan(2);
  EXPECT_EQ(plan_for_workers(config, wanted, 5, layers)
                .plan->layout.data_parallel_size,
            3);
}

}  // namespace
}  // namespace headroom::planner
