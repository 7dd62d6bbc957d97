#include "worker/data/sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::sampling {
namespace {

std::vector<int64_t> whole(uint64_t seed, int64_t epoch, int64_t n) {
  const Permutation order(seed, epoch, n);
  std::vector<int64_t> result;
  for (int64_t i = 0; i < n; ++i) result.push_back(order(i));
  return result;
}

TEST(Permutation, IsABijectionForAnySize) {
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= 300; ++n) sizes.push_back(n);
  for (const int64_t n : {1023, 1024, 1025, 4097, 65536, 65537}) {
    sizes.push_back(n);
  }
  for (const int64_t n : sizes) {
    std::vector<bool> seen(n);
    for (const int64_t value : whole(3, 1, n)) {
      ASSERT_GE(value, 0) << n;
      ASSERT_LT(value, n) << n;
      ASSERT_FALSE(seen[value]) << value << " twice of " << n;
      seen[value] = true;
    }
  }
}

TEST(Permutation, DiffersByEpochAndSeed) {
  EXPECT_EQ(whole(3, 1, 100), whole(3, 1, 100));
  EXPECT_NE(whole(3, 1, 100), whole(3, 2, 100));
  EXPECT_NE(whole(3, 1, 100), whole(4, 1, 100));
}

// Over many epochs, the first sample is at each position equally often.
TEST(Permutation, IsEvenOverEpochs) {
  constexpr int64_t kSize = 10, kEpochs = 20000;
  std::vector<int> counts(kSize);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    ++counts[Permutation(0, epoch, kSize)(0)];
  }
  double chi_squared = 0;
  for (const int count : counts) {
    const double expected = static_cast<double>(kEpochs) / kSize;
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_squared, 27.9);  // nine degrees of freedom, p = 0.001
}

TEST(Permutation, LeavesNoOrder) {
  constexpr int64_t kSize = 5000;
  const std::vector<int64_t> order = whole(0, 0, kSize);
  double sum = 0;
  for (int64_t i = 0; i < kSize; ++i) {
    sum += (i - (kSize - 1) / 2.0) * (order[i] - (kSize - 1) / 2.0);
  }
  const double variance = (static_cast<double>(kSize) * kSize - 1) / 12;
  EXPECT_LT(std::abs(sum / kSize / variance), 4 / std::sqrt(kSize));
}

TEST(Permutation, WorksForHugeSizes) {
  const int64_t n = (int64_t{1} << 55) + 12345;
  const Permutation order(9, 4, n);
  EXPECT_LT(order(n - 1), n);
  EXPECT_NE(order(0), order(1));
  EXPECT_THROW(order(n), CheckFailure);
  EXPECT_THROW(Permutation(0, 0, 0), CheckFailure);
}

}  // namespace
}  // namespace headroom::sampling
