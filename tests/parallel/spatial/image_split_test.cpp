#include "parallel/spatial/image_split.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "parallel/base/check.h"

namespace headroom::spatial {
namespace {

TEST(ImageSplit, TheExampleOfTheHeader) {
  const ImageSplit partition(224, 32, 3);
  EXPECT_EQ(partition.num_blocks(), 7);
  EXPECT_EQ(partition.blocks_of(0), (RowRange{0, 3}));
  EXPECT_EQ(partition.blocks_of(1), (RowRange{3, 5}));
  EXPECT_EQ(partition.blocks_of(2), (RowRange{5, 7}));
  EXPECT_EQ(partition.image_rows_of(1), (RowRange{96, 160}));
  EXPECT_EQ(partition.rows_of(1, 4), (RowRange{12, 20}));
  EXPECT_EQ(partition.rows_of(2, 1), (RowRange{5, 7}));
  EXPECT_EQ(partition.rows_per_block(0, 12), 4);
  EXPECT_EQ(partition.rows_per_block(1, 2), 1);
}

TEST(ImageSplit, OneRankHoldsAll) {
  EXPECT_EQ(ImageSplit(96, 32, 1).image_rows_of(0), (RowRange{0, 96}));
}

TEST(ImageSplit, MoreRanksThanBlocksAreRefusedWithTheNumbers) {
  EXPECT_NO_THROW(ImageSplit(96, 32, 3));
  try {
    ImageSplit(96, 32, 4);
    FAIL() << "4 ranks share 3 blocks";
  } catch (const Error& error) {
    EXPECT_EQ(error.tag(), "layout");
    EXPECT_EQ(error.text(),
              "spatial = 4 > 96 image rows / 32 (the largest stride) = 3");
    EXPECT_EQ(error.remedy(),
              "use spatial=3 or less, or images of at least 128 rows");
  }
}

TEST(ImageSplit, AnInvalidPartitionIsAProgrammersError) {
  EXPECT_THROW(ImageSplit(100, 32, 2), CheckFailure);
  EXPECT_THROW(ImageSplit(96, 32, 0), CheckFailure);
  const ImageSplit partition(96, 32, 2);
  EXPECT_THROW(partition.blocks_of(2), CheckFailure);
  EXPECT_THROW(partition.rows_per_block(0, 3), CheckFailure);
}

TEST(ImageSplit, RunsAreConsecutiveAndNearlyEqual) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t block_rows = random() % 2 == 0 ? 32 : 64;
    const int64_t blocks = 1 + random() % 40;
    const int ranks = 1 + static_cast<int>(random() % blocks);
    SCOPED_TRACE(std::to_string(blocks) + " blocks, " + std::to_string(ranks) +
                 " ranks");
    const ImageSplit partition(blocks * block_rows, block_rows, ranks);
    const int64_t rows_per_block = int64_t{1} << random() % 6;
    int64_t next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const RowRange rows = partition.rows_of(rank, rows_per_block);
      EXPECT_EQ(rows.begin, next);
      next = rows.end;
      const int64_t own = partition.blocks_of(rank).size();
      EXPECT_GE(own, blocks / ranks);
      EXPECT_LE(own, (blocks + ranks - 1) / ranks);
      EXPECT_TRUE(rank == 0 || own <= partition.blocks_of(rank - 1).size());
      EXPECT_EQ(partition.rows_per_block(rank, rows.size()), rows_per_block);
    }
    EXPECT_EQ(next, blocks * rows_per_block);
  }
}

}  // namespace
}  // namespace headroom::spatial
