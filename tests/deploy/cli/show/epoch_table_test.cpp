#include "deploy/cli/show/epoch_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr TerminalStyle kTerminal = {.rewrites_lines = true,
                                     .is_unicode = true};
constexpr TerminalStyle kAscii = {.rewrites_lines = true};
const NamedLosses kLosses = {{"box", 0.0812}, {"obj", 0.0331}, {"cls", 0.0208}};

coordinator::RunStatus middle_of_a_run() {
  coordinator::RunStatus status;
  status.progress = {.step = 38,
                     .num_steps = 780,
                     .epoch = 2,
                     .num_epochs = 60,
                     .step_in_epoch = 12,
                     .steps_per_epoch = 13,
                     .losses = kLosses,
                     .images_per_second = 58.34,
                     .measured_peak_bytes = 5 * kGiB / 4,
                     .predicted_peak_bytes = 3 * kGiB / 2,
                     .phase = wire::WorkerPhase::kTrain};
  status.memory_limit = 2 * kGiB;
  return status;
}

EpochLine third_epoch() {
  return {.trained = {.epoch = 2,
                      .num_epochs = 60,
                      .losses = kLosses,
                      .steps = 13,
                      .images = 208,
                      .seconds = 4.13},
          .validated = ValidatedEpoch{.epoch = 2,
                                      .precision = 0.8119,
                                      .recall = 0.7441,
                                      .map50 = 0.7913,
                                      .map = 0.4522},
          .memory = {.measured = 5 * kGiB / 4, .predicted = 3 * kGiB / 2},
          .memory_limit = 2 * kGiB,
          .eta_seconds = 250};
}

TEST(EpochTable, OfEightyColumns) {
  EXPECT_EQ(epoch_header(60, kLosses, 79),
            "  Epoch    Memory    box    obj    cls  Images      P      R  "
            "mAP50    mAP");
  EXPECT_EQ(epoch_table_line(third_epoch(), 79),
            "   3/60  1.25 GiB  0.081  0.033  0.021     208  0.812  0.744  "
            "0.791  0.452");
  EXPECT_EQ(live_line(middle_of_a_run(), std::nullopt, 79, kTerminal),
            "   3/60  1.25 GiB  0.081  0.033  0.021   92% |████████████▉ | "
            "12/13  58.3 img/s");
}

TEST(EpochTable, AHeadWithoutAnchorsNamesItsOwnLosses) {
  EpochLine line = third_epoch();
  line.trained.losses = {{"box", 1.2}, {"cls", 0.9}, {"dfl", 1.1}};
  EXPECT_THAT(epoch_header(60, line.trained.losses, 79),
              HasSubstr("    box    cls    dfl  Images"));
  EXPECT_THAT(epoch_table_line(line, 79), HasSubstr("  1.200  0.900  1.100"));
}

TEST(EpochTable, OfAHundredAndSixtyColumns) {
  EXPECT_EQ(epoch_header(60, kLosses, 159),
            "  Epoch    Memory  Predicted     Limit    box    obj    cls  "
            "Images    Time      P      R  mAP50    mAP     Left");
  EXPECT_EQ(epoch_table_line(third_epoch(), 159),
            "   3/60  1.25 GiB    1.5 GiB     2 GiB  0.081  0.033  0.021     "
            "208    4.1s  0.812  0.744  0.791  0.452    4m10s");
  EXPECT_EQ(live_line(middle_of_a_run(), 250, 159, kTerminal),
            "   3/60  1.25 GiB    1.5 GiB     2 GiB  0.081  0.033  0.021   "
            "92% |███████████████████████████▋  | 12/13  58.3 img/s  ETA "
            "4m10s");
}

TEST(EpochTable, OfTwentyColumnsIsWhatMattersMost) {
  EXPECT_EQ(epoch_header(60, kLosses, 19), "  Epoch    mAP");
  EXPECT_EQ(epoch_table_line(third_epoch(), 19), "   3/60  0.452");
  EXPECT_EQ(live_line(middle_of_a_run(), 250, 19, kTerminal), "   3/60   92%…");
}

TEST(EpochTable, NoLineIsWiderThanTheTerminal) {
  coordinator::RunStatus validating = middle_of_a_run();
  validating.progress.phase = wire::WorkerPhase::kValidate;
  for (size_t columns = 8; columns <= 200; ++columns) {
    EXPECT_LE(display_width(epoch_header(60, kLosses, columns)), columns);
    EXPECT_LE(display_width(epoch_table_line(third_epoch(), columns)), columns);
    for (const auto& status : {middle_of_a_run(), validating}) {
      EXPECT_LE(display_width(live_line(status, 250, columns, kTerminal)),
                columns);
      EXPECT_LE(display_width(live_line(status, 250, columns, kAscii)),
                columns);
    }
  }
}

TEST(EpochTable, LongRunsHaveAWiderFirstColumn) {
  EpochLine line = third_epoch();
  line.trained.num_epochs = 10'000;
  const std::string text = epoch_table_line(line, 79);
  EXPECT_EQ(text.substr(0, 12), "     3/10000");
  EXPECT_EQ(epoch_header(10'000, kLosses, 79).size(), text.size());
}

TEST(EpochTable, UnknownValuesAreADash) {
  EpochLine line = third_epoch();
  line.validated.reset();
  line.trained.images = 0;
  line.memory = {};
  EXPECT_EQ(epoch_table_line(line, 79),
            "   3/60         -  0.081  0.033  0.021       -      -      -      "
            "-      -");
}

TEST(LiveLine, AValidationCountsItsImages) {
  coordinator::RunStatus status = middle_of_a_run();
  status.progress.phase = wire::WorkerPhase::kValidate;
  EXPECT_THAT(live_line(status, std::nullopt, 79, kTerminal),
              HasSubstr("  validating  92% |"));
  status.progress.images_to_validate = 40;
  status.progress.images_validated = 10;
  const std::string line = live_line(status, std::nullopt, 79, kTerminal);
  EXPECT_THAT(line, HasSubstr("  validating  25% |"));
  EXPECT_THAT(line, HasSubstr("| 10/40"));
  EXPECT_THAT(line, Not(HasSubstr("img/s")));
}

TEST(LiveLine, SavingIsShown) {
  coordinator::RunStatus status = middle_of_a_run();
  status.progress.phase = wire::WorkerPhase::kCheckpoint;
  EXPECT_THAT(live_line(status, std::nullopt, 79, kTerminal),
              HasSubstr("  saving  92% |"));
}

TEST(LiveLine, BeforeTheFirstStep) {
  EXPECT_EQ(live_line(coordinator::RunStatus(), std::nullopt, 80, kTerminal),
            "starting");
}

}  // namespace
}  // namespace headroom::cli
