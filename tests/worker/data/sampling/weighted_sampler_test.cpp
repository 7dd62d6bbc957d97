#include "worker/data/sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

namespace headroom::sampling {
namespace {

TEST(WeightedSampler, DrawsInProportionToWeights) {
  constexpr int64_t kDraws = 100'000;
  const std::vector<double> weights = {0, 1, 2, 0, 4, 0.5, 0};
  const WeightedSampler sampler(3, weights);
  std::map<int64_t, int64_t> counts;
  for (int64_t i = 0; i < kDraws; ++i) ++counts[sampler.sample(0, i)];
  double chi_square = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t count = counts[static_cast<int64_t>(i)];
    if (weights[i] == 0) {
      EXPECT_EQ(count, 0) << i;
      continue;
    }
    const double expected = kDraws * weights[i] / 7.5;
    chi_square += std::pow(static_cast<double>(count) - expected, 2) / expected;
  }
  EXPECT_LT(chi_square, 16.3);  // three degrees of freedom, one in a thousand
  EXPECT_GT(chi_square, 0.02);  // random draws do not fit exactly
}

TEST(WeightedSampler, ADrawFollowsFromSeedEpochAndPositionAlone) {
  const std::vector<double> weights(50, 1.0);
  const WeightedSampler sampler(7, weights), again(7, weights);
  const WeightedSampler other(8, weights);
  int64_t same_in_next_epoch = 0, same_of_other = 0;
  for (int64_t i = 49; i >= 0; --i) {
    EXPECT_EQ(sampler.sample(2, i), again.sample(2, i));
    same_in_next_epoch += sampler.sample(3, i) == sampler.sample(2, i);
    same_of_other += other.sample(2, i) == sampler.sample(2, i);
  }
  EXPECT_LT(same_in_next_epoch, 10);
  EXPECT_LT(same_of_other, 10);
}

TEST(WeightedSampler, SamplesRiseWithTheirDraws) {
  const WeightedSampler sampler(5, {3, 0, 1, 1, 7, 0, 2});
  std::map<double, int64_t> by_draw;
  for (int64_t i = 0; i < 200; ++i) {
    const double draw = weighted_draw(5, 4, i);
    EXPECT_GE(draw, 0);
    EXPECT_LT(draw, 1);
    by_draw[draw] = sampler.sample(4, i);
  }
  ASSERT_EQ(by_draw.size(), 200u);
  int64_t last = 0;
  for (const auto& [draw, sample] : by_draw) {
    EXPECT_GE(sample, last) << draw;
    last = sample;
  }
}

// The positive weight may be very small or very large.
TEST(WeightedSampler, ZeroWeightIsNeverDrawn) {
  for (const std::vector<double>& weights :
       {std::vector<double>{0, 5e-324, 0}, {0, 1e308, 0}, {0, 0, 0.1, 0}}) {
    const WeightedSampler sampler(1, weights);
    std::set<int64_t> drawn;
    for (int64_t i = 0; i < 1000; ++i) drawn.insert(sampler.sample(0, i));
    ASSERT_EQ(drawn.size(), 1u);
    EXPECT_GT(weights[static_cast<size_t>(*drawn.begin())], 0);
  }
}

}  // namespace
}  // namespace headroom::sampling
