#include "deploy/cli/show/progress_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The styles of a log and of a terminal without colours.
const TerminalStyle kLog;
const TerminalStyle kTerminal = {.rewrites_lines = true, .is_unicode = true};

coordinator::TimePoint at(int64_t second) {
  return coordinator::TimePoint() + seconds(second);
}

// The status after step `step` of a run with 10 epochs of 4 steps.
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

TEST(ProgressReporter, OnATerminalOneLineLives) {
  ProgressReporter reporter(kTerminal);
  const auto output = reporter.update(after(3), 200, at(0));
  EXPECT_THAT(output.lines, IsEmpty());
  ASSERT_TRUE(output.live);
  EXPECT_THAT(*output.live, HasSubstr("  1/10  "));
  EXPECT_THAT(*output.live, HasSubstr("  75% |"));
  EXPECT_THAT(*output.live, HasSubstr("| 3/4"));
}

TEST(ProgressReporter, AValidationCountsItsImages) {
  coordinator::RunStatus status;
  status.progress.phase = wire::WorkerPhase::kValidate;
  status.progress.num_steps = 128;
  status.progress.steps_per_epoch = 128;
  ProgressReporter reporter(kTerminal);
  EXPECT_EQ(*reporter.update(status, 200, at(0)).live,
            "validating   0% |" + std::string(30, ' ') + "| 0/128 images");
  status.progress.step = 32;
  status.progress.images_per_second = 16;
  reporter.update(status, 200, at(2));
  status.progress.step = 64;
  EXPECT_THAT(*reporter.update(status, 200, at(4)).live,
              AllOf(StartsWith("validating  50% |███████████████  "),
                    EndsWith("| 64/128 images  16.0 img/s  ETA 4s")));
  ProgressReporter log(kLog);
  EXPECT_THAT(log.update(status, 0, at(2)).lines,
              ElementsAre(HasSubstr("validating  64/128 images")));
  EXPECT_THAT(log.update(status, 0, at(3)).lines, IsEmpty());
}

TEST(ProgressReporter, WithNoStepLeftNoRemainingTimeIsShown) {
  ProgressReporter reporter(kTerminal);
  reporter.update(after(20), 200, at(0));
  EXPECT_THAT(*reporter.update(after(30), 200, at(5)).live,
              HasSubstr("  ETA 5s"));
  EXPECT_EQ(reporter.update(after(40), 200, at(10)).live->find("ETA"),
            std::string::npos);
}

wire::EventRecord validated(int64_t epoch) {
  wire::EventRecord event = validation(epoch);
  event.detail_json = R"({"epoch": )" + std::to_string(epoch) +
                      R"(, "precision": 0.8, "recall": 0.7,)"
                      R"( "map50": 0.75, "map": 0.45})";
  return event;
}

TEST(ProgressReporter, OnATerminalAnEpochIsALineOfATable) {
  ProgressReporter reporter(kTerminal);
  const auto begun = reporter.update(after(4), 79, at(0));
  EXPECT_THAT(reporter.event(trained(0), at(0)).lines, IsEmpty())
      << "its validation follows";
  const auto first = reporter.event(validated(0), at(0));
  EXPECT_FALSE(first.header) << "the first epoch's live line has it above";
  EXPECT_EQ(*begun.header,
            "  Epoch    Memory    box    obj    cls  Images      P      R  "
            "mAP50    mAP");
  EXPECT_THAT(first.lines,
              ElementsAre("   1/10         -  0.100  0.020  0.030      64  "
                          "0.800  0.700  0.750  0.450"));
}

TEST(ProgressReporter, TheHeaderComesAgainAfterTwentyEpochs) {
  ProgressReporter reporter(kTerminal);
  reporter.update(after(4), 79, at(0));
  std::vector<int64_t> headed;
  for (int64_t epoch = 0; epoch < 45; ++epoch) {
    reporter.event(trained(epoch), at(epoch));
    if (reporter.event(validated(epoch), at(epoch)).header) {
      headed.push_back(epoch);
    }
  }
  EXPECT_THAT(headed, ElementsAre(20, 40));
}

TEST(ProgressReporter, AnotherWidthHasAnotherHeader) {
  ProgressReporter reporter(kTerminal);
  EXPECT_TRUE(reporter.update(after(4), 79, at(0)).header);
  reporter.event(trained(0), at(0));
  EXPECT_FALSE(reporter.event(validated(0), at(0)).header);
  reporter.update(after(5), 160, at(1));
  reporter.event(trained(1), at(1));
  EXPECT_THAT(*reporter.event(validated(1), at(1)).header,
              HasSubstr("  Predicted     Limit"));
}

TEST(ProgressReporter, AnEpochWithoutAValidationHasItsLineToo) {
  ProgressReporter reporter(kTerminal);
  reporter.update(after(4), 79, at(0));
  reporter.event(trained(0), at(0));
  EXPECT_THAT(reporter.update(after(5), 79, at(1)).lines, IsEmpty());
  EXPECT_THAT(reporter.update(after(5), 79, at(2)).lines,
              ElementsAre(StartsWith("   1/10")));
  reporter.event(trained(1), at(3));
  EXPECT_THAT(reporter.event(trained(2), at(3)).lines,
              ElementsAre(StartsWith("   2/10")));
  EXPECT_THAT(reporter.finish().lines, ElementsAre(StartsWith("   3/10")));
  EXPECT_THAT(reporter.finish().lines, IsEmpty());
}

TEST(ProgressReporter, UnreadableDetailsGiveTheReason) {
  ProgressReporter reporter(kTerminal);
  EXPECT_THAT(reporter.event(validation(0), at(0)).lines,
              ElementsAre("validated epoch 0"));
}

// A run of six epochs within a second: the polled status shows only two of the
// epochs, but the events show all of them.
TEST(ProgressReporter, InALogEveryEpochHasItsLinesInOrder) {
  ProgressReporter reporter(kLog);
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

TEST(ProgressReporter, InALogAResumedRunPrintsAfterAMinuteOrAnEpoch) {
  ProgressReporter reporter(kLog);
  EXPECT_THAT(reporter.update(after(17), 0, at(0)).lines, IsEmpty());
  EXPECT_THAT(reporter.update(after(18), 0, at(60)).lines,
              ElementsAre(HasSubstr("epoch 5/10  2/4")));
}

TEST(ProgressReporter, InALogALongEpochPrintsOnceAMinute) {
  ProgressReporter reporter(kLog);
  EXPECT_THAT(reporter.update(after(1), 0, at(0)).lines,
              ElementsAre(HasSubstr("epoch 1/10  1/4")));
  EXPECT_THAT(reporter.update(after(2), 0, at(59)).lines, IsEmpty());
  EXPECT_THAT(reporter.update(after(2), 0, at(60)).lines,
              ElementsAre(HasSubstr("epoch 1/10  2/4")));
}

TEST(ProgressReporter, InALogPhasesAreNotPrinted) {
  ProgressReporter reporter(kLog);
  coordinator::RunStatus status = after(4);
  status.progress.phase = wire::WorkerPhase::kValidate;
  EXPECT_THAT(reporter.update(status, 0, at(0)).lines,
              ElementsAre(HasSubstr("epoch 1/10  4/4  box ")));
}

TEST(ProgressReporter, NothingBeforeTheFirstStepInALog) {
  ProgressReporter reporter(kLog);
  EXPECT_THAT(reporter.update(coordinator::RunStatus(), 0, at(0)).lines,
              IsEmpty());
}

TEST(ProgressReporter, TransferredWeightsAreReported) {
  wire::EventRecord event;
  event.event = EventKind::kWeights;
  event.reason = "transferred 342 of 349 tensors from yolov5s.pt";
  EXPECT_THAT(ProgressReporter(kLog).event(event, at(0)).lines,
              ElementsAre(event.reason));
  event.warning = true;
  EXPECT_THAT(ProgressReporter(kLog).event(event, at(0)).lines,
              ElementsAre("warning: " + event.reason));
}

TEST(ProgressReporter, TheSizeOfTheDataIsReported) {
  wire::EventRecord event;
  event.event = EventKind::kData;
  event.reason = "train: 160 images (0 without boxes), 382 boxes";
  EXPECT_THAT(ProgressReporter(kLog).event(event, at(0)).lines,
              ElementsAre("data: " + event.reason));
}

TEST(ProgressReporter, WarningsAlwaysOtherEventsNever) {
  ProgressReporter reporter(kLog);
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
  ProgressReporter reporter(kLog);
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
