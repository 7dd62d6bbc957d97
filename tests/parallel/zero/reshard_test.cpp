#include "parallel/zero/shard_map.h"

#include <gtest/gtest.h>

#include <random>

#include "parallel/base/check.h"

namespace headroom::zero {
namespace {

TEST(ReshardTest, TwoRanksToThree) {
  const ShardMap two({12}, 2, 2), three({12}, 3, 2);
  const std::vector<RangeCopy> expected = {
      {0, 0, 0, 0, 4}, {0, 4, 1, 0, 2}, {1, 0, 1, 2, 2}, {1, 2, 2, 0, 4}};
  EXPECT_EQ(reshard(two, three, 0), expected);
}

TEST(ReshardTest, PaddingStaysBehind) {
  const ShardMap four({5}, 4, 4), one({5}, 1, 1);
  const std::vector<RangeCopy> expected = {{0, 0, 0, 0, 4}, {1, 0, 0, 4, 1}};
  EXPECT_EQ(reshard(four, one, 0), expected);
}

TEST(ReshardTest, MapsOfDifferentLayersAreRefused) {
  EXPECT_THROW(reshard(ShardMap({5}, 2, 1), ShardMap({6}, 2, 1), 0),
               CheckFailure);
}

// Tests 200 pairs of shard maps generated from random seeds. Each element has a
// number, by which the test checks that it arrives exactly once, at its place
// in the new map.
TEST(ReshardTest, EveryElementArrivesOnce) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<int64_t> sizes(random() % 6 + 1);
    for (int64_t& size : sizes) size = static_cast<int64_t>(random() % 200);
    const auto any_map = [&] {
      const int ranks = static_cast<int>(random() % 8) + 1;
      return ShardMap(sizes, ranks, int64_t{1} << random() % 5);
    };
    const ShardMap from = any_map(), to = any_map();
    for (int64_t layer = 0; layer < from.num_layers(); ++layer) {
      std::vector<std::vector<int64_t>> received(
          static_cast<size_t>(to.num_ranks()),
          std::vector<int64_t>(static_cast<size_t>(to.slice_size(layer)), -1));
      for (const RangeCopy& copy : reshard(from, to, layer)) {
        ASSERT_GT(copy.size, 0) << seed;
        ASSERT_LE(copy.from_offset + copy.size, from.slice_size(layer)) << seed;
        for (int64_t i = 0; i < copy.size; ++i) {
          int64_t& place = received.at(static_cast<size_t>(copy.to_rank))
                               .at(static_cast<size_t>(copy.to_offset + i));
          EXPECT_EQ(place, -1) << seed;
          place =
              copy.from_rank * from.slice_size(layer) + copy.from_offset + i;
        }
      }
      for (int64_t element = 0; element < to.layer_size(layer); ++element) {
        const int64_t slice = to.slice_size(layer);
        EXPECT_EQ(received[static_cast<size_t>(element / slice)]
                          [static_cast<size_t>(element % slice)],
                  element)
            << seed;
      }
    }
  }
}

}  // namespace
}  // namespace headroom::zero
