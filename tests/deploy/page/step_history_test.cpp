#include "deploy/page/step_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/deploy/page/run_directory_fixture.h"

namespace headroom::page {
namespace {

class StepHistoryTest : public ::testing::Test {
 protected:
  void append(const std::string& text) {
    std::ofstream(folder_.path() / "steps.jsonl", std::ios::app) << text;
    history_.refresh();
  }
  double value(size_t index, const std::string& column) const {
    const auto at = std::ranges::find(kStepColumns, column);
    return history_.steps()
        .point(index)
        .values[static_cast<size_t>(at - kStepColumns.begin())];
  }
  double box(size_t index) const { return value(index, "box"); }

  headroom::testing::TemporaryFolder folder_;
  StepHistory history_{folder_.path()};
};

TEST_F(StepHistoryTest, AFileThatIsNotThereHasNoSteps) {
  history_.refresh();
  EXPECT_EQ(history_.num_steps(), 0);
  EXPECT_EQ(history_.steps().size(), 0u);
}

TEST_F(StepHistoryTest, ALineIsReadWithItsNumbersAndTheMemoryOfItsRanks) {
  append(step_line(0, 0.75) + "\n");
  ASSERT_EQ(history_.steps().size(), 1u);
  EXPECT_EQ(history_.num_steps(), 1);
  EXPECT_EQ(history_.epoch_samples(), 48);
  EXPECT_DOUBLE_EQ(box(0), 0.75);
  EXPECT_DOUBLE_EQ(value(0, "grad_norm"), 0.5);
  EXPECT_DOUBLE_EQ(value(0, "lr"), 0.01);
  ASSERT_EQ(history_.memory().size(), 2u);
  const auto values = history_.memory().at(1).point(0).values;
  EXPECT_TRUE(std::isnan(values[StepHistory::kPredicted]));
  EXPECT_DOUBLE_EQ(values[StepHistory::kMeasured], 1800);
}

TEST_F(StepHistoryTest, AHalfLineWaitsForItsRest) {
  const std::string line = step_line(0);
  append(line.substr(0, 40));
  EXPECT_EQ(history_.num_steps(), 0);
  append(line.substr(40) + "\n");
  EXPECT_EQ(history_.num_steps(), 1);
}

TEST_F(StepHistoryTest, LinesThatAreNoStepsAreLeftOut) {
  append(step_line(0) + "\n{\"step\":\nnot JSON\n[1]\n{\"step\":-4}\n\n" +
         step_line(1) + "\n");
  EXPECT_EQ(history_.steps().size(), 2u);
}

TEST_F(StepHistoryTest, DeepNestingIsALineThatIsNoStep) {
  append("{\"a\":" + std::string(100'000, '[') + "\n" + step_line(0) + "\n");
  EXPECT_EQ(history_.num_steps(), 1);
}

TEST_F(StepHistoryTest, LossesOfAHeadWithoutAnchorsHaveTheirColumn) {
  append("{\"step\":0,\"box\":1,\"cls\":2,\"dfl\":3}\n");
  EXPECT_EQ(value(0, "cls"), 2);
  EXPECT_EQ(value(0, "dfl"), 3);
  EXPECT_TRUE(std::isnan(value(0, "obj")));
}

TEST_F(StepHistoryTest, MembersOfOtherTypesAreUnknown) {
  append("{\"step\":0,\"box\":\"a\",\"lr\":3,\"memory\":[[1]]}\n");
  EXPECT_TRUE(std::isnan(box(0)));
  EXPECT_TRUE(history_.memory().empty());
  append(step_line(0) + "\n");
  EXPECT_EQ(history_.num_steps(), 1);
}

TEST_F(StepHistoryTest, StepsThatARestartedRunTakesAgainReplaceTheFirstOnes) {
  for (int64_t step = 0; step < 6; ++step) append(step_line(step) + "\n");
  append(step_line(3, 9) + "\n");
  ASSERT_EQ(history_.steps().size(), 4u);
  EXPECT_DOUBLE_EQ(box(3), 9);
  EXPECT_EQ(history_.num_steps(), 4);
  EXPECT_EQ(history_.memory().at(0).size(), 4u);
}

TEST_F(StepHistoryTest, AFileThatWasCutAndGrewBeyondItsOldEndIsReadAgain) {
  append(step_line(0) + "\n" + step_line(1) + "\n");
  std::filesystem::resize_file(folder_.path() / "steps.jsonl",
                               step_line(0).size() + 1);
  append(step_line(1, 7) + "\n" + step_line(2, 8) + "\n");
  ASSERT_EQ(history_.steps().size(), 3u);
  EXPECT_DOUBLE_EQ(box(1), 7);
}

TEST_F(StepHistoryTest, ALineAboveTheLimitIsSkipped) {
  append(step_line(0) + "\n" + std::string((16 << 20) + 10, 'x'));
  append("\n" + step_line(1) + "\n");
  EXPECT_EQ(history_.num_steps(), 2);
}

TEST(DecimatedSeries, HundredThousandsOfPointsStayBoundedAndKeepTheirExtremes) {
  DecimatedSeries series(2, 1000);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0, 1);
  for (int64_t step = 0; step < 300'000; ++step) {
    const double spike = step == 123'456 ? 50 : step == 7 ? -50 : noise(random);
    series.add(step, std::array{spike, noise(random)});
    ASSERT_LE(series.size(), 1000u);
  }
  double least = 0, greatest = 0;
  for (size_t i = 0; i < series.size(); ++i) {
    least = std::min(least, series.point(i).values[0]);
    greatest = std::max(greatest, series.point(i).values[0]);
    if (i == 0) continue;
    ASSERT_GT(series.point(i).step, series.point(i - 1).step);
  }
  EXPECT_DOUBLE_EQ(greatest, 50);
  EXPECT_DOUBLE_EQ(least, -50);
  EXPECT_EQ(series.point(series.size() - 1).step, 299'999);
}

TEST(DecimatedSeries, TheRequestedNumberOfPointsIsChosenFromAStepOn) {
  DecimatedSeries series(1, 10'000);
  for (int64_t step = 0; step < 5000; ++step) {
    series.add(step, std::array{step == 4321 ? 9.0 : 1.0});
  }
  const std::vector<size_t> chosen = series.chosen(100, 1000);
  ASSERT_LE(chosen.size(), 100u);
  ASSERT_GE(chosen.size(), 20u);
  bool has_peak = false;
  for (const size_t i : chosen) {
    EXPECT_GE(series.point(i).step, 1000);
    has_peak |= series.point(i).step == 4321;
  }
  EXPECT_TRUE(has_peak);
  EXPECT_EQ(series.chosen(8000, 0).size(), 5000u);
}

TEST(DecimatedSeries, UnknownValuesAreNoExtremes) {
  DecimatedSeries series(1, 100);
  for (int64_t step = 0; step < 1000; ++step) {
    series.add(step, std::array{step == 500 ? 3.0 : std::nan("")});
  }
  bool has_value = false;
  for (size_t i = 0; i < series.size(); ++i) {
    has_value |= series.point(i).values[0] == 3.0;
  }
  EXPECT_TRUE(has_value);
}

}  // namespace
}  // namespace headroom::page
