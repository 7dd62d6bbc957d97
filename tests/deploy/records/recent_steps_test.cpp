#include "deploy/records/recent_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace headroom::records {
namespace {

std::string line_of(int step, double speed, size_t samples = 0) {
  std::string list;
  for (size_t i = 0; i < samples; ++i) list += i == 0 ? "7" : ",7";
  return "{\"step\":" + std::to_string(step) + ",\"samples\":[" + list +
         "],\"images_per_second\":" + std::to_string(speed) + "}\n";
}

void append(const std::filesystem::path& folder, const std::string& text) {
  std::ofstream(folder / "steps.jsonl", std::ios::app) << text;
}

TEST(RecentSteps, TheMedianFollowsTheFileWhileItGrows) {
  const testing::TemporaryFolder folder;
  RecentSteps steps(folder.path());
  steps.refresh();
  EXPECT_TRUE(std::isnan(steps.median_speed()));
  EXPECT_EQ(steps.last_line(), "");
  append(folder.path(), line_of(0, 2, 3) + line_of(1, 20) + "[1]\n" +
                            line_of(2, 21) + "{\"step\":3,");
  steps.refresh();
  EXPECT_EQ(steps.median_speed(), 20) << "the slow first step is no measure";
  EXPECT_EQ(steps.last_line() + "\n", line_of(2, 21));
  append(folder.path(), "\"images_per_second\":30}\n" + line_of(4, 40, 2));
  steps.refresh();
  EXPECT_EQ(steps.median_speed(), 21);
  EXPECT_EQ(steps.last_line() + "\n", line_of(4, 40)) << "without samples";
}

// A run that goes on at an earlier step cuts the lines after it.
TEST(RecentSteps, LinesThatAreCutOffNoLongerCount) {
  const testing::TemporaryFolder folder;
  const auto file =
      folder.write("steps.jsonl", line_of(0, 10) + line_of(1, 90));
  RecentSteps steps(folder.path());
  steps.refresh();
  EXPECT_EQ(steps.median_speed(), 90);
  std::filesystem::resize_file(file, line_of(0, 10).size());
  steps.refresh();
  EXPECT_EQ(steps.median_speed(), 10);
  EXPECT_EQ(steps.last_line() + "\n", line_of(0, 10));
}

TEST(RecentSteps, OfALongFileOnlyTheEndCountsHoweverItWasRead) {
  const testing::TemporaryFolder folder;
  RecentSteps followed(folder.path());
  const std::string slow = line_of(0, 1, 10'000), fast = line_of(1, 5, 10'000);
  for (int i = 0; i < 300; ++i) append(folder.path(), slow);
  followed.refresh();
  EXPECT_EQ(followed.median_speed(), 1);
  for (int i = 0; i < 150; ++i) append(folder.path(), fast);
  followed.refresh();
  // 4 MiB hold 209 of these lines.
  EXPECT_EQ(followed.median_speed(), 5);
  EXPECT_EQ(median_speed(folder.path()), 5);
}

}  // namespace
}  // namespace headroom::records
