#include "worker/run/run_end.h"

#include <gtest/gtest.h>

namespace headroom::run {
namespace {

constexpr int64_t kStepsInEpoch = 10;

configs::RunConfig config_of(int64_t epochs) {
  configs::RunConfig config;
  config.epochs = epochs;
  config.patience = 0;
  return config;
}

step::TrainingCounters counters_of(int64_t committed, int64_t best_epoch = -1) {
  step::TrainingCounters counters;
  counters.committed_steps = committed;
  counters.recorded_epochs = committed / kStepsInEpoch;
  counters.best_epoch = best_epoch;
  return counters;
}

TEST(RunMilestones, BetweenEpochsIsAfterTheLastStepOfOneAndBeforeTheFirst) {
  EXPECT_TRUE(is_between_epochs(0, kStepsInEpoch));
  EXPECT_FALSE(is_between_epochs(1, kStepsInEpoch));
  EXPECT_FALSE(is_between_epochs(9, kStepsInEpoch));
  EXPECT_TRUE(is_between_epochs(10, kStepsInEpoch));
  EXPECT_TRUE(is_between_epochs(3, 1));
}

TEST(RunMilestones, ARunEndsAfterItsEpochsOrItsSteps) {
  configs::RunConfig config = config_of(3);
  EXPECT_EQ(num_steps(config, kStepsInEpoch), 30);
  EXPECT_FALSE(reason_to_end(config, kStepsInEpoch, counters_of(29)));
  EXPECT_EQ(reason_to_end(config, kStepsInEpoch, counters_of(30)),
            "all 30 steps done");
  config.max_steps = 25;
  EXPECT_EQ(num_steps(config, kStepsInEpoch), 25);
  EXPECT_FALSE(reason_to_end(config, kStepsInEpoch, counters_of(24)));
  EXPECT_EQ(reason_to_end(config, kStepsInEpoch, counters_of(25)),
            "reached --max-steps 25");
  config.max_steps = 20;
  EXPECT_EQ(reason_to_end(config, kStepsInEpoch, counters_of(20)),
            "all 20 steps done");
  config.max_steps = 31;
  EXPECT_EQ(num_steps(config, kStepsInEpoch), 30);
}

TEST(RunMilestones, TheTimeIsOverAtItsSecond) {
  using std::chrono::seconds;
  const std::chrono::system_clock::time_point start(seconds(1'000'000));
  configs::RunConfig config = config_of(3);
  configs::begin_hours(config, start);
  EXPECT_FALSE(is_time_over(config, start + seconds(1'000'000)))
      << "there is no limit";
  config.hours = 0.5;
  configs::begin_hours(config, start);
  EXPECT_FALSE(is_time_over(config, start + seconds(1799)));
  EXPECT_TRUE(is_time_over(config, start + seconds(1800)));
  // On resume, the run may take the whole time once more.
  configs::begin_hours(config, start + seconds(1800));
  EXPECT_FALSE(is_time_over(config, start + seconds(3599)));
  EXPECT_TRUE(is_time_over(config, start + seconds(3600)));
}

TEST(RunMilestones, PatienceEndsARunAtAnEpochsEnd) {
  configs::RunConfig config = config_of(100);
  config.patience = 2;
  EXPECT_FALSE(reason_to_end(config, kStepsInEpoch, counters_of(30, 1)));
  EXPECT_EQ(reason_to_end(config, kStepsInEpoch, counters_of(40, 1)),
            "no progress in 2 epochs (--patience); the best was epoch 2");
  EXPECT_FALSE(reason_to_end(config, kStepsInEpoch, counters_of(41, 1)));
  EXPECT_FALSE(reason_to_end(config, kStepsInEpoch, counters_of(90, -1)))
      << "no epoch was judged";
}

TEST(RunMilestones, CheckpointsAreDueAfterEpochsAndOnRequest) {
  configs::RunConfig config = config_of(100);
  EXPECT_EQ(newest_due_checkpoint(config, kStepsInEpoch, 9), 0);
  EXPECT_EQ(newest_due_checkpoint(config, kStepsInEpoch, 27), 20);
  config.checkpoint_every_steps = 4;
  EXPECT_EQ(newest_due_checkpoint(config, kStepsInEpoch, 27), 24);
  EXPECT_EQ(newest_due_checkpoint(config, kStepsInEpoch, 22), 20);
  config.nosave = true;
  EXPECT_EQ(newest_due_checkpoint(config, kStepsInEpoch, 11), 8);
  config.checkpoint_every_steps = 0;
  EXPECT_EQ(newest_due_checkpoint(config, kStepsInEpoch, 27), 0);
}

TEST(RunMilestones, WithinALongEpochACheckpointIsDueEachMinute) {
  configs::RunConfig config = config_of(100);
  EXPECT_FALSE(is_checkpoint_due(config, std::chrono::seconds(59)));
  EXPECT_TRUE(is_checkpoint_due(config, std::chrono::seconds(60)));
  config.checkpoint_every_steps = 4;  // has priority over the seconds
  EXPECT_FALSE(is_checkpoint_due(config, std::chrono::seconds(60)));
  config.checkpoint_every_steps = 0;
  config.nosave = true;
  EXPECT_FALSE(is_checkpoint_due(config, std::chrono::hours(1)));
}

}  // namespace
}  // namespace headroom::run
