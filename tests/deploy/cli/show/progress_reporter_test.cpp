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
coordinator::RunStatus after(int64_t step) {
  coordinator::RunStatus status;
  wire::RunProgress& progress = status.progress;
  progress.step = step;
  progress.num_steps = 40;
  progress.num_epochs = 10;
  progress.steps_per_epoch = 4;
  progress.epoch = (step - 1) / 4;
  progress.step_in_epoch = (step - 1) % 4 + 1;
  progress.phase = wire::WorkerPhase::kTrain;
  return status;
}

wire::EventRecord validation(int64_t epoch) {
  wire::EventRecord event;
  event.event = EventKind::kValidation;
  event.step = (epoch + 1) * 4;
  event.reason = "validated epoch " + std::to_string(epoch);
  return event;
}

wire::EventRecord trained(int64_t epoch) {
  wire::EventRecord event;
  event.event = EventKind::kEpoch;
  event.step = (epoch + 1) * 4;
  event.detail_json = R"({"epoch": )" + std::to_string(epoch) +
                      R"(, "num_epochs": 10, "box": 0.1, "obj": 0.02,)"
                      R"( "cls": 0.03, "steps": 4, "images": 64,)"
                      R"( "seconds": 2.13})";
  return event;
}

TEST(EtaEstimate, FromTheStepsSeenSoFar) {
  EtaEstimate eta;
  EXPECT_FALSE(eta.update(after(10).progress, at(100)));  // a resumed run
  EXPECT_FALSE(eta.update(after(10).progress, at(101)));
  EXPECT_DOUBLE_EQ(*eta.update(after(20).progress, at(105)), 10.0);
  EXPECT_DOUBLE_EQ(*eta.update(after(40).progress, at(115)), 0.0);
  EXPECT_FALSE(EtaEstimate().update(wire::RunProgress(), at(0)));
}

TEST(ProgressReporter, OnATerminalOneLineLives) {
  ProgressReporter reporter(true);
  const auto output = reporter.update(after(3), 200, at(0));
  EXPECT_THAT(output.lines, IsEmpty());
  ASSERT_TRUE(output.live);
  EXPECT_THAT(*output.live, HasSubstr("epoch 1/10  3/4"));
}

TEST(ProgressReporter, AValidationCountsItsImages) {
  coordinator::RunStatus status;
  status.progress.phase = wire::WorkerPhase::kValidate;
  status.progress.num_steps = 128;
  status.progress.steps_per_epoch = 128;
  ProgressReporter reporter(true);
  EXPECT_EQ(*reporter.update(status, 200, at(0)).live,
            "validating  0/128 images  0.0 img/s");
  status.progress.step = 32;
  status.progress.images_per_second = 16;
  reporter.update(status, 200, at(2));
  status.progress.step = 64;
  EXPECT_EQ(*reporter.update(status, 200, at(4)).live,
            "validating  64/128 images  16.0 img/s  ETA 4s");
  ProgressReporter log(false);
  EXPECT_THAT(log.update(status, 0, at(2)).lines,
              ElementsAre(HasSubstr("validating  64/128 images")));
  EXPECT_THAT(log.update(status, 0, at(3)).lines, IsEmpty());
}

TEST(ProgressReporter, WhereNothingIsLeftThereIsNoTimeLeft) {
  ProgressReporter reporter(true);
  reporter.update(after(20), 200, at(0));
  EXPECT_THAT(*reporter.update(after(30), 200, at(5)).live,
              HasSubstr("  ETA 5s"));
  EXPECT_EQ(reporter.update(after(40), 200, at(10)).live->find("ETA"),
            std::string::npos);
}

TEST(ProgressReporter, OnATerminalTheLinesOfAnEpochStay) {
  ProgressReporter reporter(true);
  EXPECT_THAT(reporter.event(validation(0), at(0)).lines,
              ElementsAre("validated epoch 0"));
  EXPECT_THAT(reporter.event(trained(1), at(1)).lines,
              ElementsAre(HasSubstr("epoch 2/10  box ")));
  EXPECT_THAT(reporter.event(validation(1), at(1)).lines,
              ElementsAre("validated epoch 1"));
}

// Six epochs within a second: the status, asked for now and then, shows two of
// them, the events all.
TEST(ProgressReporter, InALogEveryEpochHasItsLinesInOrder) {
  ProgressReporter reporter(false);
  std::vector<std::string> lines;
  const auto add = [&](const ProgressReporter::Output& output) {
    lines.insert(lines.end(), output.lines.begin(), output.lines.end());
  };
  add(reporter.update(after(1), 0, at(0)));
  add(reporter.update(after(22), 0, at(120)));
  std::vector<std::string> wanted = {"epoch 1/10  1/4  "};
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    add(reporter.event(trained(epoch), at(120)));
    add(reporter.event(validation(epoch), at(120)));
    wanted.push_back("epoch " + std::to_string(epoch + 1) + "/10  box 0.100 ");
    wanted.push_back("validated epoch " + std::to_string(epoch));
  }
  ASSERT_EQ(lines.size(), wanted.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_TRUE(lines[i].starts_with(wanted[i])) << lines[i];
  }
}

TEST(ProgressReporter, InALogAResumedRunSpeaksAfterAMinuteOrAnEpoch) {
  ProgressReporter reporter(false);
  EXPECT_THAT(reporter.update(after(17), 0, at(0)).lines, IsEmpty());
  EXPECT_THAT(reporter.update(after(18), 0, at(60)).lines,
              ElementsAre(HasSubstr("epoch 5/10  2/4")));
}

TEST(ProgressReporter, InALogALongEpochSpeaksOnceAMinute) {
  ProgressReporter reporter(false);
  EXPECT_THAT(reporter.update(after(1), 0, at(0)).lines,
              ElementsAre(HasSubstr("epoch 1/10  1/4")));
  EXPECT_THAT(reporter.update(after(2), 0, at(59)).lines, IsEmpty());
  EXPECT_THAT(reporter.update(after(2), 0, at(60)).lines,
              ElementsAre(HasSubstr("epoch 1/10  2/4")));
}

TEST(ProgressReporter, InALogNothingIsSaidOfPhases) {
  ProgressReporter reporter(false);
  coordinator::RunStatus status = after(4);
  status.progress.phase = wire::WorkerPhase::kValidate;
  EXPECT_THAT(reporter.update(status, 0, at(0)).lines,
              ElementsAre(HasSubstr("epoch 1/10  4/4  box ")));
}

TEST(ProgressReporter, NothingBeforeTheFirstStepInALog) {
  ProgressReporter reporter(false);
  EXPECT_THAT(reporter.update(coordinator::RunStatus(), 0, at(0)).lines,
              IsEmpty());
}

TEST(ProgressReporter, WhatWasTransferredIsSaid) {
  wire::EventRecord event;
  event.event = EventKind::kWeights;
  event.reason = "Transferred 342/349 items from yolov5s.pt";
  EXPECT_THAT(ProgressReporter(false).event(event, at(0)).lines,
              ElementsAre(event.reason));
  event.warning = true;
  EXPECT_THAT(ProgressReporter(false).event(event, at(0)).lines,
              ElementsAre("warning: " + event.reason));
}

TEST(ProgressReporter, HowMuchDataThereIsIsSaid) {
  wire::EventRecord event;
  event.event = EventKind::kData;
  event.reason = "train: 160 images (0 without boxes), 382 boxes";
  EXPECT_THAT(ProgressReporter(false).event(event, at(0)).lines,
              ElementsAre("data: " + event.reason));
}

TEST(ProgressReporter, WarningsAlwaysOtherEventsNever) {
  ProgressReporter reporter(false);
  reporter.update(after(4), 0, at(0));
  wire::EventRecord event;
  event.event = EventKind::kCheckpoint;
  event.reason = "saved";
  EXPECT_THAT(reporter.event(event, at(1)).lines, IsEmpty());
  event.warning = true;
  EXPECT_THAT(reporter.event(event, at(1)).lines,
              ElementsAre("warning: saved"));
}

TEST(ProgressReporter, AFaultThatEndsTheRunIsLeftToItsLastLine) {
  ProgressReporter reporter(false);
  wire::EventRecord fault = {
      .event = EventKind::kFault, .reason = "[data] bad", .warning = true};
  EXPECT_THAT(reporter.event(fault, at(0)).lines,
              ElementsAre("warning: [data] bad"))
      << "the run goes on";
  fault.ends_run = true;
  EXPECT_THAT(reporter.event(fault, at(0)).lines, IsEmpty());
  const wire::EventRecord end = {
      .event = EventKind::kRunOver, .reason = "[data] bad", .warning = true};
  EXPECT_THAT(reporter.event(end, at(0)).lines, IsEmpty());
}

}  // namespace
}  // namespace headroom::cli
