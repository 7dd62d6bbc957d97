#include "worker/run/run_end.h"

#include <gtest/gtest.h>

#include "worker/run/validation_pace.h"

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

using std::chrono::milliseconds;
using std::chrono::seconds;
const ValidationPace::Time kBegin(seconds(1000));

TEST(ValidationPace, EveryEpochIsDueWithoutAShare) {
  ValidationPace pace(0);
  pace.note(kBegin, kBegin + seconds(100));
  EXPECT_TRUE(pace.is_due(kBegin + seconds(100)));
}

TEST(ValidationPace, AnEpochIsDueOnceTrainingHasTheRestOfTheTime) {
  ValidationPace pace(0.2);
  EXPECT_TRUE(pace.is_due(kBegin)) << "the first one";
  pace.note(kBegin, kBegin + seconds(2));
  EXPECT_FALSE(pace.is_due(kBegin + seconds(2)));
  EXPECT_FALSE(pace.is_due(kBegin + milliseconds(9'990)));
  EXPECT_TRUE(pace.is_due(kBegin + milliseconds(10'010)));
  EXPECT_DOUBLE_EQ(pace.trained_seconds(kBegin + seconds(5)), 3);
  pace.note(kBegin + seconds(11), kBegin + seconds(12));
  EXPECT_EQ(pace.seconds(), 1);
  EXPECT_TRUE(pace.is_due(kBegin + milliseconds(16'010)));
}

// COCO on 512 cards: an epoch trains for 0.13 s, its validation takes 2 s.
TEST(ValidationPace, KeepsItsShareOfARunOfShortEpochs) {
  for (const double share : {0.1, 0.2, 0.5}) {
    ValidationPace pace(share);
    ValidationPace::Time now = kBegin;
    int64_t validated = 0;
    for (int epoch = 0; epoch < 3000; ++epoch) {
      now += milliseconds(130);
      if (!pace.is_due(now)) continue;
      pace.note(now, now + seconds(2));
      now += seconds(2);
      ++validated;
    }
    const double all = std::chrono::duration<double>(now - kBegin).count();
    EXPECT_LE(2.0 * static_cast<double>(validated - 1) / all, share);
    EXPECT_GT(2.0 * static_cast<double>(validated) / all, 0.9 * share);
  }
}

TEST(ValidationPace, EpochsThatAreLongEnoughAreAllDue) {
  ValidationPace pace(0.2);
  ValidationPace::Time now = kBegin;
  for (int epoch = 0; epoch < 10; ++epoch) {
    now += seconds(9);
    EXPECT_TRUE(pace.is_due(now));
    pace.note(now, now + seconds(2));
    now += seconds(2);
  }
}

}  // namespace
}  // namespace headroom::run
