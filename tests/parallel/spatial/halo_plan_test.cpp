#include "parallel/spatial/image_split.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::spatial {
namespace {

using Pieces = std::vector<HaloPiece>;

TEST(HaloPlan, TheExampleOfTheHeader) {
  const ImageSplit partition(4 * 32, 32, 4);
  const HaloPlan plan = plan_halo(partition, 2, 1, 3, 3);
  EXPECT_EQ(plan.own, (RowRange{2, 4}));
  EXPECT_EQ(plan.rows_above_edge, 1);
  EXPECT_EQ(plan.rows_below_edge, 0);
  EXPECT_EQ(plan.receives, (Pieces{{0, {0, 2}}, {2, {4, 6}}, {3, {6, 7}}}));
  EXPECT_EQ(plan.sends, (Pieces{{0, {2, 4}}, {2, {2, 4}}, {3, {3, 4}}}));
  EXPECT_EQ(place_in_halo(plan, 0, 3), 1);
  EXPECT_EQ(place_in_halo(plan, 4, 3), 3);
  EXPECT_EQ(place_in_halo(plan, 6, 3), 5);
}

TEST(HaloPlan, ADownsamplingKernelReadsRowsAboveOnly) {
  const ImageSplit partition(96, 32, 3);
  const HaloPlan plan = plan_halo(partition, 4, 1, 1, 0);
  EXPECT_EQ(plan.receives, (Pieces{{0, {3, 4}}}));
  EXPECT_EQ(plan.sends, (Pieces{{2, {7, 8}}}));
}

TEST(HaloPlan, WithoutWantedRowsNothingIsSent) {
  const HaloPlan plan = plan_halo(ImageSplit(96, 32, 3), 4, 1, 0, 0);
  EXPECT_TRUE(plan.receives.empty());
  EXPECT_TRUE(plan.sends.empty());
}

TEST(HaloPlan, ANegativeHaloIsAProgrammersError) {
  EXPECT_THROW(plan_halo(ImageSplit(96, 32, 3), 4, 1, -1, 0), CheckFailure);
}

// Checks each row by the definition: the halo of a rank is the `top` rows above
// its own rows and the `bottom` rows below them.
void expect_halo(const ImageSplit& partition, int64_t rows_per_block, int rank,
                 int64_t top, int64_t bottom) {
  std::vector<int> owner;
  for (int r = 0; r < partition.spatial_parallel_size(); ++r)
    owner.insert(owner.end(), partition.rows_of(r, rows_per_block).size(), r);
  const auto global_rows = static_cast<int64_t>(owner.size());
  const HaloPlan plan = plan_halo(partition, rows_per_block, rank, top, bottom);

  std::vector<int64_t> wanted;
  for (int64_t row = plan.own.begin - top; row < plan.own.begin; ++row)
    wanted.push_back(row);
  for (int64_t row = plan.own.end; row < plan.own.end + bottom; ++row)
    wanted.push_back(row);

  std::map<int64_t, int> received;  // row -> peer
  for (const HaloPiece& piece : plan.receives)
    for (int64_t row = piece.rows.begin; row < piece.rows.end; ++row)
      EXPECT_TRUE(received.emplace(row, piece.peer).second)
          << "row " << row << " comes twice";
  const auto halo_rows = static_cast<int64_t>(wanted.size());
  for (int64_t place = 0; place < halo_rows; ++place) {
    const int64_t row = wanted[static_cast<size_t>(place)];
    if (row < 0 || row >= global_rows) {
      EXPECT_TRUE(row < 0 ? place < plan.rows_above_edge
                          : place >= halo_rows - plan.rows_below_edge);
      continue;
    }
    ASSERT_EQ(received.count(row), 1u) << "row " << row << " does not come";
    EXPECT_EQ(received.at(row), owner[static_cast<size_t>(row)]);
    EXPECT_EQ(place_in_halo(plan, row, top), place);
    received.erase(row);
  }
  EXPECT_TRUE(received.empty()) << "rows come that nobody wants";
}

TEST(HaloPlan, EveryRowWantedComesFromItsOwnerOnce) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t blocks = 1 + random() % 12;
    const int ranks = 1 + static_cast<int>(random() % blocks);
    const int64_t rows_per_block = 1 + random() % 5;
    const int64_t top = random() % 8, bottom = random() % 8;
    SCOPED_TRACE(std::to_string(blocks) + " blocks of " +
                 std::to_string(rows_per_block) + " rows, " +
                 std::to_string(ranks) + " ranks, " + std::to_string(top) +
                 " above, " + std::to_string(bottom) + " below");
    const ImageSplit partition(blocks * 32, 32, ranks);
    // Maps (sender, receiver) to the pieces in their order.
    std::map<std::pair<int, int>, std::vector<RowRange>> sent, received;
    for (int rank = 0; rank < ranks; ++rank) {
      expect_halo(partition, rows_per_block, rank, top, bottom);
      const HaloPlan plan =
          plan_halo(partition, rows_per_block, rank, top, bottom);
      for (const HaloPiece& piece : plan.sends)
        sent[{rank, piece.peer}].push_back(piece.rows);
      for (const HaloPiece& piece : plan.receives)
        received[{piece.peer, rank}].push_back(piece.rows);
    }
    EXPECT_EQ(sent, received);
    for (const auto& [pair, pieces] : sent) EXPECT_EQ(pieces.size(), 1u);
  }
}

}  // namespace
}  // namespace headroom::spatial
