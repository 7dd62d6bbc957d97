#include "worker/data/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace headroom::sampling {
namespace {

TEST(Sampler, EachSampleExactlyOncePerEpoch) {
  for (const int64_t n : {1, 2, 3, 5, 16, 17, 100, 205}) {
    for (const int64_t batch : {1, 2, 3, 7, 16, 64, 300}) {
      const int64_t steps = steps_per_epoch(n, batch);
      EXPECT_EQ(steps, (n + batch - 1) / batch);
      for (int64_t epoch = 0; epoch < 2; ++epoch) {
        std::vector<int64_t> used;
        for (int64_t s = 0; s < steps; ++s) {
          const EpochStep step = epoch_step(epoch * steps + s, n, batch);
          ASSERT_EQ(step.epoch, epoch);
          ASSERT_EQ(step.step, s);
          const std::vector<int64_t> samples = shuffled_samples(11, step, n);
          ASSERT_EQ(static_cast<int64_t>(samples.size()),
                    step.positions.size());
          used.insert(used.end(), samples.begin(), samples.end());
        }
        std::sort(used.begin(), used.end());
        std::vector<int64_t> expected(n);
        std::iota(expected.begin(), expected.end(), 0);
        ASSERT_EQ(used, expected) << n << " samples, batch " << batch;
      }
    }
  }
}

TEST(Sampler, AChosenPartIsAscendingAndFollowsTheSeed) {
  const std::vector<int64_t> part = chosen_part(3, 0.3, 100);
  EXPECT_EQ(part.size(), 30u);
  EXPECT_TRUE(std::ranges::is_sorted(part));
  EXPECT_EQ(std::ranges::adjacent_find(part), part.end());
  EXPECT_GE(part.front(), 0);
  EXPECT_LT(part.back(), 100);
  EXPECT_EQ(chosen_part(3, 0.3, 100), part);
  EXPECT_NE(chosen_part(4, 0.3, 100), part);
  // A larger part contains every sample of a smaller part.
  const std::vector<int64_t> more = chosen_part(3, 0.5, 100);
  EXPECT_TRUE(std::ranges::includes(more, part));
  EXPECT_EQ(chosen_part(3, 1, 100).size(), 100u);
  EXPECT_EQ(chosen_part(3, 0.0001, 100).size(), 1u);
}

TEST(Sampler, TheLastBatchIsShort) {
  const EpochStep last = epoch_step(12, 205, 16);
  EXPECT_EQ(last.epoch, 0);
  EXPECT_EQ(last.positions, (plan::SampleRange{192, 205}));
  EXPECT_EQ(epoch_step(13, 205, 16).epoch, 1);
  EXPECT_EQ(epoch_step(13, 205, 16).positions, (plan::SampleRange{0, 16}));
}

// A run that resumes with a newer program continues the same sequence. The
// Python package computes the same numbers
// (tests/deploy/python_client_test.py).
TEST(Sampler, TheOrderOfAnEpochStays) {
  EXPECT_EQ(shuffled_samples(7, {3, 0, {0, 10}}, 10),
            (std::vector<int64_t>{4, 1, 8, 3, 5, 6, 7, 0, 9, 2}));
  EXPECT_EQ(
      shuffled_samples((uint64_t{1} << 40) + 5, {2, 0, {118280, 118287}},
                       118287),
      (std::vector<int64_t>{83394, 52272, 111965, 84882, 58580, 26970, 68331}));
}

TEST(Sampler, SamplesAreThoseAtThePositions) {
  const EpochOrder squares = [](int64_t position) {
    return position * position;
  };
  EXPECT_EQ(samples_at(squares, {2, 5}), (std::vector<int64_t>{4, 9, 16}));
  EXPECT_TRUE(samples_at(squares, {3, 3}).empty());
}

}  // namespace
}  // namespace headroom::sampling
