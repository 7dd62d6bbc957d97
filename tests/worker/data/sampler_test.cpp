#include "worker/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace headroom {
namespace {

// The samples of one step over all ranks, in order.
std::vector<int64_t> all_ranks(uint64_t seed, const EpochStep& step,
                               int64_t num_samples, int ranks) {
  std::vector<int64_t> samples;
  for (int rank = 0; rank < ranks; ++rank) {
    const RankSamples part =
        shuffled_samples(seed, step, num_samples, ranks, rank);
    EXPECT_EQ(part.local.begin, static_cast<int64_t>(samples.size()));
    EXPECT_EQ(part.local.size(), static_cast<int64_t>(part.samples.size()));
    samples.insert(samples.end(), part.samples.begin(), part.samples.end());
  }
  return samples;
}

TEST(Sampler, EachSampleExactlyOncePerEpochForAnyNumberOfRanks) {
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
          const std::vector<int64_t> one = all_ranks(11, step, n, 1);
          for (const int ranks : {2, 3, 4, 8}) {
            ASSERT_EQ(all_ranks(11, step, n, ranks), one)
                << n << " samples, batch " << batch << ", ranks " << ranks;
          }
          used.insert(used.end(), one.begin(), one.end());
        }
        std::sort(used.begin(), used.end());
        std::vector<int64_t> expected(n);
        std::iota(expected.begin(), expected.end(), 0);
        ASSERT_EQ(used, expected) << n << " samples, batch " << batch;
      }
    }
  }
}

TEST(Sampler, TheLastBatchIsShort) {
  const EpochStep last = epoch_step(12, 205, 16);
  EXPECT_EQ(last.epoch, 0);
  EXPECT_EQ(last.positions, (SampleRange{192, 205}));
  EXPECT_EQ(epoch_step(13, 205, 16).epoch, 1);
  EXPECT_EQ(epoch_step(13, 205, 16).positions, (SampleRange{0, 16}));
}

TEST(Sampler, OrderedSamplesKeepTheirOrder) {
  const std::vector<int64_t> order{4, 2, 0, 1, 3};
  const RankSamples second = ordered_samples(epoch_step(1, 5, 3), order, 2, 0);
  EXPECT_EQ(second.samples, (std::vector<int64_t>{1}));
  EXPECT_EQ(second.local, (SampleRange{0, 1}));
  const RankSamples other = ordered_samples(epoch_step(0, 5, 3), order, 2, 1);
  EXPECT_EQ(other.samples, (std::vector<int64_t>{0}));
  EXPECT_EQ(other.local, (SampleRange{2, 3}));
}

}  // namespace
}  // namespace headroom
