#include "deploy/cli/show/progress_line.h"

#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

coordinator::RunStatus middle_of_a_run() {
  coordinator::RunStatus status;
  wire::RunProgress& progress = status.progress;
  progress.step = 38;
  progress.num_steps = 780;
  progress.epoch = 2;
  progress.num_epochs = 60;
  progress.step_in_epoch = 12;
  progress.steps_per_epoch = 13;
  progress.losses = {{"box", 0.0812}, {"obj", 0.0331}, {"cls", 0.0208}};
  progress.images_per_second = 58.34;
  progress.measured_peak_bytes = 1'288'490'189;  // 1.2 GiB
  progress.phase = wire::WorkerPhase::kTrain;
  return status;
}

TEST(ProgressLine, AllOfIt) {
  EXPECT_EQ(progress_line(middle_of_a_run(), 250.4),
            "epoch 3/60  12/13  box 0.081 obj 0.033 cls 0.021  58.3 img/s  "
            "1.2 GiB (predicted -)  ETA 4m10s");
}

TEST(ProgressLine, PredictedMemoryWhereItIsKnown) {
  coordinator::RunStatus status = middle_of_a_run();
  status.progress.predicted_peak_bytes = 1'395'864'371;  // 1.3 GiB
  EXPECT_EQ(progress_line(status, std::nullopt),
            "epoch 3/60  12/13  box 0.081 obj 0.033 cls 0.021  58.3 img/s  "
            "1.2 GiB (predicted 1.3 GiB)");
}

// The line shows the rank with the most memory, which is rarely rank 0: in a
// pipeline it is the first stage, with split images the rank with the most
// rows.
TEST(ProgressLine, TheFullestRanksMemoryAgainstTheLimit) {
  coordinator::RunStatus status = middle_of_a_run();
  status.progress.predicted_peak_bytes = 1'395'864'371;
  status.memory_limit = int64_t{2} << 30;
  status.plan.emplace().predicted_phase_bytes = {
      {.training = 1'395'864'371}, {.training = int64_t{1792} << 20}, {}};
  const auto memory = [&](int64_t second, int64_t third,
                          coordinator::MemberActivity state_of_third) {
    const int64_t bytes[] = {1'288'490'189, second, third};
    status.members.resize(3);
    for (int rank = 0; rank < 3; ++rank) {
      status.members[rank].rank = rank;
      status.members[rank].state =
          rank < 2 ? coordinator::MemberActivity::kRunning : state_of_third;
      status.members[rank].measured_peak_bytes = bytes[rank];
    }
    const std::string line = progress_line(status, std::nullopt);
    return line.substr(line.find("img/s") + 7);
  };
  EXPECT_EQ(
      memory(int64_t{1536} << 20, 5, coordinator::MemberActivity::kRunning),
      "rank 1: 1.5 GiB of 2 GiB (predicted 1.75 GiB)");
  EXPECT_EQ(memory(7, int64_t{3} << 29, coordinator::MemberActivity::kGone),
            "rank 0: 1.2 GiB of 2 GiB (predicted 1.3 GiB)");
}

TEST(ProgressLine, OtherPhasesAreNamed) {
  coordinator::RunStatus status = middle_of_a_run();
  status.progress.phase = wire::WorkerPhase::kValidate;
  EXPECT_EQ(progress_line(status, std::nullopt).substr(0, 38),
            "epoch 3/60  12/13  validating  box 0.0");
  status.progress.phase = wire::WorkerPhase::kCheckpoint;
  EXPECT_EQ(progress_line(status, std::nullopt).substr(0, 34),
            "epoch 3/60  12/13  saving  box 0.0");
}

TEST(ProgressLine, BeforeTheFirstStep) {
  EXPECT_EQ(progress_line(coordinator::RunStatus(), std::nullopt), "starting");
}

TEST(ProgressLine, EtaInWholeSecondsMinutesOrHours) {
  const auto eta = [](double seconds) {
    const std::string line = progress_line(middle_of_a_run(), seconds);
    return line.substr(line.rfind("ETA"));
  };
  EXPECT_EQ(eta(7.6), "ETA 8s");
  EXPECT_EQ(eta(59.6), "ETA 1m0s");
  EXPECT_EQ(eta(3599), "ETA 59m59s");
  EXPECT_EQ(eta(7384), "ETA 2h3m");
}

wire::EventRecord validation_event() {
  wire::EventRecord event;
  event.event = EventKind::kValidation;
  event.step = 39;
  event.rank = 0;
  event.reason = "epoch 3 validated";
  event.detail_json = R"({"epoch": 2, "precision": 0.8119, "recall": 0.7441,)"
                      R"( "map50": 0.7913, "map": 0.4522})";
  return event;
}

TEST(EpochLine, LossesCountsAndSeconds) {
  wire::EventRecord event;
  event.event = EventKind::kEpoch;
  event.reason = "epoch 3 trained";
  event.detail_json = R"({"epoch": 2, "num_epochs": 60, "box": 0.0812,)"
                      R"( "obj": 0.0331, "cls": 0.0208, "steps": 13,)"
                      R"( "images": 208, "seconds": 4.13})";
  EXPECT_EQ(epoch_line(event, middle_of_a_run(), 246.0),
            "epoch 3/60  box 0.081 obj 0.033 cls 0.021  13 steps, 208 images "
            "in 4.1s  1.2 GiB (predicted -)  ETA 4m6s");
  event.detail_json = R"({"epoch": 2, "num_epochs": 60, "box": 0, "obj": 0,)"
                      R"( "cls": 0, "steps": 0, "images": 0, "seconds": 0})";
  EXPECT_EQ(epoch_line(event, middle_of_a_run(), std::nullopt),
            "epoch 3/60  box 0.000 obj 0.000 cls 0.000  1.2 GiB (predicted -)");
  event.detail_json = R"({"epoch": 2, "num_epochs": "sixty"})";
  EXPECT_EQ(epoch_line(event, middle_of_a_run(), 1.0), "epoch 3 trained");
}

TEST(ValidationLine, TheMetricsOfAnEpoch) {
  EXPECT_EQ(validation_line(validation_event(), 60),
            "epoch 3/60  P 0.812 R 0.744 mAP50 0.791 mAP 0.452");
}

TEST(ValidationLine, TheReasonWhereTheDetailIsUnreadable) {
  wire::EventRecord event = validation_event();
  for (
      const char* detail :
      {"", "{", "[1]", R"({"epoch": 2})",
       R"({"epoch": 2, "precision": "x", "recall": 0, "map50": 0, "map": 0})"}) {
    event.detail_json = detail;
    EXPECT_EQ(validation_line(event, 60), "epoch 3 validated") << detail;
  }
}

TEST(EventLine, ShowsTheKnownValues) {
  wire::EventRecord event;
  event.reason = "2 images were skipped";
  EXPECT_EQ(event_line(event), "2 images were skipped");
  event.warning = true;
  EXPECT_EQ(event_line(event), "warning: 2 images were skipped");
  event.step = 12;
  EXPECT_EQ(event_line(event), "warning: step 12: 2 images were skipped");
  event.rank = 1;
  EXPECT_EQ(event_line(event),
            "warning: step 12, rank 1: 2 images were skipped");
}

}  // namespace
}  // namespace headroom::cli
