#include "coordinator/planner.h"

#include <gmock/gmock.h>

namespace headroom {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

RunConfig batch_of(int64_t global_batch_size) {
  RunConfig config;
  config.global_batch_size = global_batch_size;
  return config;
}

void expect_refused(const RunConfig& config, int world_size,
                    const std::string& reason, const std::string& remedy) {
  const PlanDecision decision = choose_plan(config, world_size);
  EXPECT_FALSE(decision.plan);
  EXPECT_EQ(decision.reason, reason);
  EXPECT_EQ(decision.remedy, remedy);
  EXPECT_EQ(decision.exit_code, ExitCode::kRequest);
}

TEST(Planner, WithoutAWishAllRanksShareTheBatch) {
  const PlanDecision decision = choose_plan(batch_of(16), 2);
  ASSERT_TRUE(decision.plan);
  const Plan& plan = *decision.plan;
  EXPECT_EQ(to_string(plan.layout), "data=2,pipeline=1,spatial=1");
  EXPECT_EQ(plan.backend, Backend::kGloo);
  EXPECT_EQ(plan.micro_batch_size, 8);
  EXPECT_EQ(plan.batch_norm_group_size, 16);
  EXPECT_EQ(plan.reason,
            "chosen: 16 images over 2 ranks, micro-batches of 8, batch-norm "
            "groups of 16");
  EXPECT_EQ(decision.exit_code, ExitCode::kDone);
}

TEST(Planner, AnUnevenShareIsTheLargestRanks) {
  const PlanDecision decision = choose_plan(batch_of(18), 4);
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(decision.plan->micro_batch_size, 5);
  EXPECT_EQ(decision.plan->batch_norm_group_size, 9);
}

TEST(Planner, TheGroupDoesNotDependOnTheNumberOfRanks) {
  for (int world_size = 1; world_size <= 48; ++world_size) {
    const PlanDecision decision = choose_plan(batch_of(48), world_size);
    ASSERT_TRUE(decision.plan) << world_size;
    EXPECT_EQ(decision.plan->batch_norm_group_size, 16) << world_size;
    EXPECT_EQ(decision.plan->layout.world_size(), world_size);
  }
}

TEST(Planner, WhatIsGivenIsObeyed) {
  RunConfig config = batch_of(64);
  config.layout = "pipeline=1,data=2";
  config.micro_batch_size = 32;
  config.batch_norm_group_size = 8;
  config.backend = "mpi";
  const PlanDecision decision = choose_plan(config, 2);
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(decision.plan->micro_batch_size, 32);
  EXPECT_EQ(decision.plan->batch_norm_group_size, 8);
  EXPECT_EQ(decision.plan->backend, Backend::kMpi);
  EXPECT_EQ(decision.plan->reason,
            "as asked: 64 images over 2 ranks, micro-batches of 32, "
            "batch-norm groups of 8");
}

TEST(Planner, ABatchSmallerThanTheDataAxisIsRefusedWithBothNumbers) {
  RunConfig config = batch_of(1);
  config.layout = "data=2";
  expect_refused(config, 2,
                 "--batch 1 is smaller than the data axis of 2 ranks",
                 "use --batch 2 or more, or --processes 1 or fewer");
}

TEST(Planner, ValidationMayHaveMoreRanksThanABatchHasImages) {
  RunConfig config = batch_of(1);
  config.command = "val";
  const PlanDecision decision = choose_plan(config, 2);
  ASSERT_TRUE(decision.plan) << decision.reason;
  EXPECT_EQ(decision.plan->layout.data_parallel_size, 2);
  EXPECT_EQ(decision.plan->micro_batch_size, 1);
}

TEST(Planner, OtherAxesAreRefused) {
  RunConfig config = batch_of(16);
  config.layout = "pipeline=2";
  expect_refused(
      config, 2,
      "--layout pipeline=2: this version splits over the data axis only",
      "use --layout data=2");
  config.layout = "spatial=2";
  expect_refused(
      config, 2,
      "--layout spatial=2: this version splits over the data axis only",
      "use --layout data=2");
}

TEST(Planner, ALayoutOfAnotherSizeIsRefusedWithBothNumbers) {
  RunConfig config = batch_of(16);
  config.layout = "data=4";
  expect_refused(config, 2,
                 "--layout data=4 has 4 ranks but there are 2 workers",
                 "use --layout data=2 or --processes 4");
}

TEST(Planner, AMicroBatchThatIsNotAShareIsRefused) {
  for (const int micro_batch : {4, 9}) {
    RunConfig config = batch_of(16);
    config.micro_batch_size = micro_batch;
    expect_refused(config, 2,
                   "--micro-batch " + std::to_string(micro_batch) +
                       " is not a rank's share of 8 images (16 / 2 ranks), "
                       "and this version runs a share at once",
                   "leave it out; more --processes or a smaller --batch lower "
                   "memory");
  }
}

TEST(Planner, AGroupLargerThanTheBatchIsRefused) {
  RunConfig config = batch_of(16);
  config.batch_norm_group_size = 32;
  expect_refused(config, 1,
                 "--bn-group 32 is larger than the global batch of 16",
                 "use --bn-group 16 or fewer");
}

TEST(Planner, AnUnknownBackendIsRefused) {
  RunConfig config = batch_of(16);
  config.backend = "smoke";
  expect_refused(config, 1, "there is no backend 'smoke'",
                 "use --backend auto, gloo or mpi");
}

TEST(Planner, ARefusalAsAnErrorIsOneLine) {
  RunConfig config = batch_of(1);
  EXPECT_THAT([&] { plan_or_throw(config, 2); },
              ThrowsMessage<Error>(
                  "[plan] --batch 1 is smaller than the data axis of 2 ranks: "
                  "use --batch 2 or more, or --processes 1 or fewer"));
}

}  // namespace
}  // namespace headroom
