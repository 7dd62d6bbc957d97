#include "deploy/cli/show/progress_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

coordinator::TimePoint at(int64_t second) {
  return coordinator::TimePoint() + seconds(second);
}

// Step `step` of 10 epochs of 4 steps.
wire::RunProgress after(int64_t step) {
  wire::RunProgress progress;
  progress.step = step;
  progress.num_steps = 40;
  progress.num_epochs = 10;
  progress.steps_per_epoch = 4;
  progress.epoch = (step - 1) / 4;
  progress.step_in_epoch = (step - 1) % 4 + 1;
  progress.phase = "train";
  return progress;
}

wire::EventRecord validation(int64_t epoch) {
  wire::EventRecord event;
  event.event = "validation";
  event.step = (epoch + 1) * 4;
  event.reason = "validated epoch " + std::to_string(epoch);
  return event;
}

TEST(EtaEstimate, FromTheStepsSeenSoFar) {
  EtaEstimate eta;
  EXPECT_FALSE(eta.update(after(10), at(100)));  // a resumed run
  EXPECT_FALSE(eta.update(after(10), at(101)));
  EXPECT_DOUBLE_EQ(*eta.update(after(20), at(105)), 10.0);
  EXPECT_DOUBLE_EQ(*eta.update(after(40), at(115)), 0.0);
  EXPECT_FALSE(EtaEstimate().update(wire::RunProgress(), at(0)));
}

TEST(ProgressReporter, OnATerminalOneLineLives) {
  ProgressReporter reporter(true);
  const auto output = reporter.update(after(3), 200, at(0));
  EXPECT_THAT(output.lines, IsEmpty());
  ASSERT_TRUE(output.live);
  EXPECT_THAT(*output.live, HasSubstr("epoch 1/10  3/4"));
}

TEST(ProgressReporter, OnATerminalEachValidationStays) {
  ProgressReporter reporter(true);
  EXPECT_THAT(reporter.event(validation(0), at(0)).lines,
              ElementsAre("validated epoch 0"));
  EXPECT_THAT(reporter.event(validation(1), at(1)).lines,
              ElementsAre("validated epoch 1"));
}

TEST(ProgressReporter, InALogOneLinePerEpochAtMostOneInTenSeconds) {
  ProgressReporter reporter(false);
  EXPECT_THAT(reporter.update(after(4), 0, at(0)).lines,
              ElementsAre(HasSubstr("epoch 1/10  4/4")));
  EXPECT_THAT(reporter.update(after(4), 0, at(11)).lines, IsEmpty());
  EXPECT_THAT(reporter.update(after(8), 0, at(5)).lines, IsEmpty());
  EXPECT_THAT(reporter.update(after(12), 0, at(12)).lines,
              ElementsAre(HasSubstr("epoch 3/10  4/4")));
}

TEST(ProgressReporter, InALogALongEpochSpeaksOnceAMinute) {
  ProgressReporter reporter(false);
  EXPECT_THAT(reporter.update(after(1), 0, at(0)).lines,
              ElementsAre(HasSubstr("epoch 1/10  1/4")));
  EXPECT_THAT(reporter.update(after(2), 0, at(59)).lines, IsEmpty());
  EXPECT_THAT(reporter.update(after(2), 0, at(60)).lines,
              ElementsAre(HasSubstr("epoch 1/10  2/4")));
}

TEST(ProgressReporter, InALogTheLastEpochIsAlwaysTold) {
  ProgressReporter reporter(false);
  reporter.update(after(36), 0, at(0));
  EXPECT_THAT(reporter.update(after(40), 0, at(1)).lines,
              ElementsAre(HasSubstr("epoch 10/10  4/4")));
  EXPECT_THAT(reporter.update(after(40), 0, at(2)).lines, IsEmpty());
  EXPECT_THAT(reporter.event(validation(9), at(2)).lines,
              ElementsAre("validated epoch 9"));
}

TEST(ProgressReporter, InALogAnEpochHasItsValidationOrNothing) {
  ProgressReporter reporter(false);
  reporter.update(after(4), 0, at(0));
  EXPECT_THAT(reporter.event(validation(0), at(1)).lines,
              ElementsAre("validated epoch 0"));
  EXPECT_THAT(reporter.update(after(8), 0, at(5)).lines, IsEmpty());
  EXPECT_THAT(reporter.event(validation(1), at(6)).lines, IsEmpty());
  EXPECT_THAT(reporter.update(after(12), 0, at(12)).lines,
              ElementsAre(HasSubstr("epoch 3/10")));
}

TEST(ProgressReporter, InALogNothingIsSaidOfPhases) {
  ProgressReporter reporter(false);
  wire::RunProgress progress = after(4);
  progress.phase = "validate";
  EXPECT_THAT(reporter.update(progress, 0, at(0)).lines,
              ElementsAre(HasSubstr("epoch 1/10  4/4  box ")));
}

TEST(ProgressReporter, NothingBeforeTheFirstStepInALog) {
  ProgressReporter reporter(false);
  EXPECT_THAT(reporter.update(wire::RunProgress(), 0, at(0)).lines, IsEmpty());
}

TEST(ProgressReporter, WarningsAlwaysOtherEventsNever) {
  ProgressReporter reporter(false);
  reporter.update(after(4), 0, at(0));
  wire::EventRecord event;
  event.event = "checkpoint";
  event.reason = "saved";
  EXPECT_THAT(reporter.event(event, at(1)).lines, IsEmpty());
  event.warning = true;
  EXPECT_THAT(reporter.event(event, at(1)).lines,
              ElementsAre("warning: saved"));
}

wire::EventRecord named(const std::string& event, const std::string& reason) {
  wire::EventRecord record;
  record.event = event;
  record.reason = reason;
  record.warning = true;
  return record;
}

TEST(ProgressReporter, AFaultThatEndsTheRunIsLeftToItsLastLine) {
  ProgressReporter reporter(false);
  EXPECT_THAT(reporter.event(named("fault", "[data] bad"), at(0)).lines,
              IsEmpty());
  EXPECT_THAT(
      reporter.event(named(wire::kRunOverEvent, "[data] bad"), at(0)).lines,
      IsEmpty());
}

TEST(ProgressReporter, AFaultThatTheRunSurvivesOrEndsOtherwiseIsTold) {
  ProgressReporter reporter(false);
  reporter.event(named("fault", "first"), at(0));
  EXPECT_THAT(reporter.event(named("generation", "again"), at(0)).lines,
              ElementsAre("warning: first", "warning: again"));
  reporter.event(named("fault", "second"), at(0));
  EXPECT_THAT(reporter.event(named(wire::kRunOverEvent, "third"), at(0)).lines,
              ElementsAre("warning: second"));
}

}  // namespace
}  // namespace headroom::cli
