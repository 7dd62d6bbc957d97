#include "parallel/planner/replan.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <functional>
#include <optional>

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

TEST_F(Elastic, ARequestedLayoutIsLeftAndReturns) {
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

// Measures processor time, so that other load on the machine does not matter.
double seconds_of(const std::function<void()>& body) {
  const std::clock_t begin = std::clock();
  body();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST_F(Elastic, ThousandsOfWorkersArePlannedForInSeconds) {
  constexpr int kWorkers = 4096;
  for (const int64_t limit : {int64_t{0}, int64_t{2} << 30}) {
    config.global_batch_size = int64_t{16} * kWorkers;
    config.memory_limit = limit;
    std::optional<plan::Plan> first;
    const double choosing = seconds_of([&] { first = plan(kWorkers); });
    ASSERT_EQ(first->layout.world_size(), kWorkers);
    const double replanning =
        seconds_of([&] { EXPECT_NE(layout(*first, kWorkers - 41), ""); });
    std::printf("limit %lld: %.2f s for %d workers, %.2f s for 1 %% less\n",
                static_cast<long long>(limit), choosing, kWorkers, replanning);
    EXPECT_LT(choosing, 2);
    EXPECT_LT(replanning, 2);
  }
}

}  // namespace
}  // namespace headroom::planner
