#include "worker/step/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::step {
namespace {

using ::testing::HasSubstr;

// The news of `rank` after each of these reports, as letters: "s" slow, "r"
// recovered, "." none.
std::string news(const plan::ParallelLayout& layout, int rank,
                 const std::vector<std::vector<double>>& reports) {
  Stragglers stragglers(layout, rank);
  std::string all;
  for (const auto& report : reports) {
    const auto one = stragglers.note(report);
    all += !one ? "." : one->is_slow ? "s" : "r";
  }
  return all;
}

std::vector<std::vector<double>> times(int count, std::vector<double> report) {
  return std::vector<std::vector<double>>(static_cast<size_t>(count), report);
}

std::vector<std::vector<double>> operator+(
    std::vector<std::vector<double>> a,
    const std::vector<std::vector<double>>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr plan::ParallelLayout kTwo{.data_parallel_size = 2};
constexpr plan::ParallelLayout kFour{.data_parallel_size = 4};

TEST(Stragglers, ASlowRankIsNamedOnceAndAgainWhenItRecovers) {
  const auto slow = times(8, {1, 1.3});
  const auto swift = times(8, {1, 1.05});
  EXPECT_EQ(news(kTwo, 1, slow + swift + slow), "....s.....r.......s.....");
  EXPECT_EQ(news(kTwo, 0, slow + swift + slow), std::string(24, '.'));
}

TEST(Stragglers, AFewSlowReportsNameNobody) {
  const auto mixed = times(2, {1, 2}) + times(3, {1, 1});
  EXPECT_EQ(news(kTwo, 1, mixed + mixed), std::string(10, '.'));
  EXPECT_EQ(news(kTwo, 1, times(20, {1, 1.19})), std::string(20, '.'));
}

// Between the two factors nothing changes.
TEST(Stragglers, ARankThatHalfRecoversIsStillSlow) {
  EXPECT_EQ(news(kTwo, 1, times(5, {1, 1.3}) + times(20, {1, 1.15})),
            "....s" + std::string(20, '.'));
}

TEST(Stragglers, OneSlowPeerDoesNotMoveTheMedian) {
  const auto reports = times(5, {1, 1, 5, 1.3});
  EXPECT_EQ(news(kFour, 3, reports), "....s");
  EXPECT_EQ(news(kFour, 2, reports), "....s");
  EXPECT_EQ(news(kFour, 0, reports), ".....");
}

TEST(Stragglers, OnlyRanksWithTheSameWorkAreCompared) {
  // Ranks 0, 1: the first stage; ranks 2, 3: the second, with more work.
  const plan::ParallelLayout stages{.pipeline_parallel_size = 2,
                                    .data_parallel_size = 2};
  EXPECT_EQ(news(stages, 2, times(5, {1, 1, 3, 3})), ".....");
  EXPECT_EQ(news(stages, 2, times(5, {1, 1, 4, 3})), "....s");
  // Ranks 0, 2 have the upper part of their images, ranks 1, 3 the lower.
  const plan::ParallelLayout parts{.data_parallel_size = 2,
                                   .spatial_parallel_size = 2};
  EXPECT_EQ(news(parts, 1, times(5, {1, 2, 1, 2})), ".....");
  EXPECT_EQ(news(parts, 1, times(5, {1, 2, 1, 1})), "....s");
  EXPECT_EQ(news({.pipeline_parallel_size = 2}, 1, times(5, {1, 9})), ".....");
}

TEST(Stragglers, AnUnknownTimeIsNotJudged) {
  const auto slow = times(2, {1, 1.3});
  EXPECT_EQ(news(kTwo, 1, slow + times(3, {1, 0}) + slow + slow), ".......s.");
  EXPECT_EQ(news(kTwo, 1, times(9, {0, 1.3})), std::string(9, '.'));
}

TEST(Stragglers, TheReasonHasBothTimes) {
  Stragglers stragglers(kTwo, 1);
  std::optional<Stragglers::News> last;
  for (size_t i = 0; i < Stragglers::kReports; ++i) {
    last = stragglers.note({0.01, 0.013});
  }
  ASSERT_TRUE(last);
  EXPECT_EQ(last->reason,
            "is slow: its passes take 1.3 times as long as its peers' (now 13 "
            "and 10 ms an image)");
}

}  // namespace
}  // namespace headroom::step
