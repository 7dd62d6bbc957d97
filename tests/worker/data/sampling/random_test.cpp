#include "worker/data/sampling/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "parallel/base/check.h"

namespace headroom::sampling {
namespace {

// Known answers of Random123 (kat_vectors, philox 4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kAll = 0xffffffff;
  EXPECT_EQ(philox4x32({kAll, kAll, kAll, kAll}, {kAll, kAll}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, DependsOnEachPartOfItsKey) {
  const auto first = [](uint64_t seed, uint64_t epoch, uint64_t index,
                        RandomPurpose purpose) {
    return RandomStream(seed, epoch, index, purpose).bits();
  };
  using enum RandomPurpose;
  const std::set<uint64_t> values{first(0, 0, 0, kAugmentation),
                                  first(1, 0, 0, kAugmentation),
                                  first(1ull << 40, 0, 0, kAugmentation),
                                  first(0, 1, 0, kAugmentation),
                                  first(0, 0, 1, kAugmentation),
                                  first(0, 0, 1ull << 40, kAugmentation),
                                  first(0, 0, 0, kPermutation),
                                  first(0, 0, 0, kSyntheticImage)};
  EXPECT_EQ(values.size(), 8u);
  EXPECT_EQ(first(5, 6, 7, kAugmentation), first(5, 6, 7, kAugmentation));
}

TEST(RandomStream, RefusesNumbersThatDoNotFitItsCounter) {
  EXPECT_THROW(RandomStream(0, 1ull << 32, 0, RandomPurpose::kAugmentation),
               CheckFailure);
  EXPECT_THROW(RandomStream(0, 0, 1ull << 56, RandomPurpose::kAugmentation),
               CheckFailure);
}

TEST(RandomStream, UniformFillsItsRange) {
  RandomStream draws(1, 2, 3, RandomPurpose::kAugmentation);
  double sum = 0, lowest = 1, highest = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double value = draws.uniform();
    sum += value;
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  EXPECT_GE(lowest, 0);
  EXPECT_LT(highest, 1);
  EXPECT_LT(lowest, 0.001);
  EXPECT_GT(highest, 0.999);
  // Five standard deviations of a mean of uniform draws.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
}

TEST(RandomStream, BelowIsEven) {
  RandomStream draws(1, 2, 3, RandomPurpose::kAugmentation);
  constexpr int kSides = 6, kDraws = 60000;
  std::array<int, kSides> counts{};
  for (int i = 0; i < kDraws; ++i) ++counts[draws.below(kSides)];
  double chi_squared = 0;
  for (const int count : counts) {
    const double expected = kDraws / kSides;
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_squared, 20.5);  // five degrees of freedom, p = 0.001
  EXPECT_EQ(draws.below(1), 0);
  EXPECT_THROW(draws.below(0), CheckFailure);
}

}  // namespace
}  // namespace headroom::sampling
