#include "parallel/zero/shard_map.h"

#include <gtest/gtest.h>

#include <random>

#include "parallel/base/check.h"

namespace headroom::zero {
namespace {

TEST(ShardMapTest, EveryLayerIsCutIntoEqualAlignedSlices) {
  const ShardMap map({10, 0, 16, 17}, 2, 4);
  EXPECT_EQ(map.slice_size(0), 8);  // 10 is padded to 16
  EXPECT_EQ(map.slice_size(1), 0);
  EXPECT_EQ(map.slice_size(2), 8);
  EXPECT_EQ(map.slice_size(3), 12);  // 17 is padded to 24
  EXPECT_EQ(map.shard_offset(3), 16);
  EXPECT_EQ(map.layer_offset(3), 32);
  EXPECT_EQ(map.padded_layer_size(3), 24);
  EXPECT_EQ(map.shard_size(), 28);
  EXPECT_EQ(map.whole_size(), 56);
  EXPECT_EQ(map.largest_slice(), 12);
}

TEST(ShardMapTest, OneRankOwnsEverything) {
  const ShardMap map({3, 5}, 1, 1);
  EXPECT_EQ(map.shard_size(), 8);
  EXPECT_EQ(map.layer_offset(1), 3);
}

TEST(ShardMapTest, NoLayerIsNoElement) {
  const ShardMap map({}, 3, 4);
  EXPECT_EQ(map.shard_size(), 0);
  EXPECT_EQ(map.largest_slice(), 0);
}

// Tests 200 shard maps generated from random seeds: every element belongs to
// one rank, slices are aligned, and the padding of a layer is less than one
// alignment per rank.
TEST(ShardMapTest, SlicesTileTheWholeExactlyOnce) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int ranks = static_cast<int>(random() % 9) + 1;
    const int64_t alignment = int64_t{1} << random() % 5;
    std::vector<int64_t> sizes(random() % 12 + 1);
    for (int64_t& size : sizes) size = static_cast<int64_t>(random() % 300);
    const ShardMap map(sizes, ranks, alignment);

    std::vector<int> owners(static_cast<size_t>(map.whole_size()), 0);
    for (int64_t layer = 0; layer < map.num_layers(); ++layer) {
      EXPECT_EQ(map.slice_size(layer) % alignment, 0) << seed;
      EXPECT_GE(map.padded_layer_size(layer), map.layer_size(layer)) << seed;
      EXPECT_LT(map.padded_layer_size(layer) - map.layer_size(layer),
                ranks * alignment)
          << seed;
      for (int rank = 0; rank < ranks; ++rank) {
        const int64_t begin =
            map.layer_offset(layer) + rank * map.slice_size(layer);
        for (int64_t i = 0; i < map.slice_size(layer); ++i) {
          ++owners.at(static_cast<size_t>(begin + i));
        }
      }
    }
    for (const int count : owners) EXPECT_EQ(count, 1) << seed;
  }
}

TEST(ShardMapTest, ImpossibleMapsAreRefused) {
  EXPECT_THROW(ShardMap({1}, 0, 4), CheckFailure);
  EXPECT_THROW(ShardMap({1}, 2, 0), CheckFailure);
  EXPECT_THROW(ShardMap({-1}, 2, 4), CheckFailure);
}

}  // namespace
}  // namespace headroom::zero
