#include "parallel/predict/caching_allocator.h"

#include <gtest/gtest.h>

#include <exception>
#include <random>
#include <utility>
#include <vector>

namespace headroom::predict {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(CachingAllocator, SmallRequestsShareSegmentsInSteps) {
  CachingAllocator allocator;
  ASSERT_TRUE(allocator.allocate(1));
  ASSERT_TRUE(allocator.allocate(513));
  EXPECT_EQ(allocator.requested_bytes(), 514);
  EXPECT_EQ(allocator.allocated_bytes(), 512 + 1024);
  EXPECT_EQ(allocator.reserved_bytes(), 2 * kMiB);
  ASSERT_TRUE(allocator.allocate(kMiB));
  EXPECT_EQ(allocator.reserved_bytes(), 2 * kMiB) << "of the same segment";
  ASSERT_TRUE(allocator.allocate(kMiB));
  EXPECT_EQ(allocator.reserved_bytes(), 4 * kMiB);
}

TEST(CachingAllocator, LargeSegmentsAre20MiBOrTheRequest) {
  const auto reserved_for = [](int64_t bytes) {
    CachingAllocator allocator;
    EXPECT_TRUE(allocator.allocate(bytes));
    return allocator.reserved_bytes();
  };
  EXPECT_EQ(reserved_for(kMiB), 2 * kMiB);
  EXPECT_EQ(reserved_for(kMiB + 1), 20 * kMiB);
  EXPECT_EQ(reserved_for(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(reserved_for(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(reserved_for(21 * kMiB), 22 * kMiB);
}

TEST(CachingAllocator, TheRestOfALargeBlockIsCutOffAboveOneMiB) {
  CachingAllocator allocator;
  const auto segment = allocator.allocate(20 * kMiB);
  allocator.free(*segment);
  const auto most = allocator.allocate(19 * kMiB);
  EXPECT_EQ(allocator.allocated_bytes(), 20 * kMiB) << "all of it";
  allocator.free(*most);
  ASSERT_TRUE(allocator.allocate(19 * kMiB - 512));
  EXPECT_EQ(allocator.allocated_bytes(), 19 * kMiB - 512);
  EXPECT_EQ(allocator.reserved_bytes(), 20 * kMiB);
}

TEST(CachingAllocator, TheSmallestBlockThatHoldsItIsTaken) {
  CachingAllocator allocator;
  const auto wide = allocator.allocate(40 * kMiB);
  const auto narrow = allocator.allocate(12 * kMiB);
  allocator.free(*wide);
  allocator.free(*narrow);
  ASSERT_TRUE(allocator.allocate(12 * kMiB));
  ASSERT_TRUE(allocator.allocate(40 * kMiB)) << "is still whole";
  EXPECT_EQ(allocator.reserved_bytes(), 52 * kMiB);
}

TEST(CachingAllocator, FreedNeighboursJoin) {
  CachingAllocator allocator;
  const auto first = allocator.allocate(6 * kMiB);
  const auto second = allocator.allocate(6 * kMiB);
  const auto third = allocator.allocate(8 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 20 * kMiB);
  allocator.free(*first);
  allocator.free(*third);
  ASSERT_TRUE(allocator.allocate(9 * kMiB));
  EXPECT_EQ(allocator.reserved_bytes(), 40 * kMiB)
      << "14 MiB are free, but not in one piece";
  allocator.free(*second);
  ASSERT_TRUE(allocator.allocate(20 * kMiB));
  EXPECT_EQ(allocator.reserved_bytes(), 40 * kMiB);
}

TEST(CachingAllocator, CachesAreReleasedForTheLimit) {
  CachingAllocator allocator(64 * kMiB);
  const auto first = allocator.allocate(40 * kMiB);
  allocator.free(*first);
  EXPECT_EQ(allocator.reserved_bytes(), 40 * kMiB);
  ASSERT_TRUE(allocator.allocate(44 * kMiB));
  EXPECT_EQ(allocator.reserved_bytes(), 44 * kMiB);
  EXPECT_EQ(allocator.retries(), 1);
}

TEST(CachingAllocator, ASegmentThatIsUsedAnywhereIsNotReleased) {
  CachingAllocator allocator(64 * kMiB);
  const auto first = allocator.allocate(4 * kMiB);
  const auto second = allocator.allocate(9 * kMiB);
  allocator.free(*first);
  EXPECT_FALSE(allocator.allocate(46 * kMiB))
      << "44 MiB beside the segment of 20, 11 of which are free";
  EXPECT_EQ(allocator.reserved_bytes(), 20 * kMiB);
  allocator.free(*second);
  EXPECT_TRUE(allocator.allocate(46 * kMiB));
}

TEST(CachingAllocator, ARefusalChangesNothing) {
  CachingAllocator allocator(20 * kMiB);
  const auto held = allocator.allocate(8 * kMiB);
  EXPECT_FALSE(allocator.allocate(13 * kMiB));
  EXPECT_EQ(allocator.requested_bytes(), 8 * kMiB);
  EXPECT_TRUE(allocator.allocate(12 * kMiB));
  allocator.free(*held);
}

TEST(CachingAllocator, AnyHistoryAddsUp) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> logarithm(6, 25);
  CachingAllocator allocator(512 * kMiB);
  std::vector<std::pair<CachingAllocator::Block, int64_t>> live;
  int64_t requested = 0;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    if (!live.empty() && random() % 2 == 0) {
      std::swap(live[random() % live.size()], live.back());
      allocator.free(live.back().first);
      requested -= live.back().second;
      live.pop_back();
    } else {
      const auto bytes = static_cast<int64_t>(std::exp2(logarithm(random)));
      if (const auto block = allocator.allocate(bytes)) {
        live.emplace_back(*block, bytes);
        requested += bytes;
      } else {
        ++refused;
      }
    }
    ASSERT_EQ(allocator.requested_bytes(), requested);
    ASSERT_LE(requested, allocator.allocated_bytes());
    ASSERT_LE(allocator.allocated_bytes(), allocator.reserved_bytes());
    ASSERT_LE(allocator.reserved_bytes(), 512 * kMiB);
  }
  EXPECT_GT(refused, 0);
  for (const auto& [block, bytes] : live) allocator.free(block);
  EXPECT_EQ(allocator.allocated_bytes(), 0);
  allocator.release_caches();
  EXPECT_EQ(allocator.reserved_bytes(), 0) << "all pieces joined again";
}

TEST(CachingAllocator, ABlockIsFreedOnce) {
  CachingAllocator allocator;
  const auto block = allocator.allocate(100);
  allocator.free(*block);
  EXPECT_THROW(allocator.free(*block), std::exception);
}

}  // namespace
}  // namespace headroom::predict
