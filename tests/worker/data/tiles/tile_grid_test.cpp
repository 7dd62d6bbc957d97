// Tests the properties of the grid for random sizes: every pixel is in a tile;
// tiles are full, inside the image and overlap enough; and there are no more
// tiles than needed.
#include "worker/data/tiles/tile_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace headroom::tiles {
namespace {

using Starts = std::vector<int64_t>;

TEST(TileGrid, AnImageThatIsNoLargerThanATileIsOneTileAsItIs) {
  EXPECT_EQ(tile_grid(480, 300, 640, 640, 0.2),
            (std::vector<TileRect>{{0, 0, 480, 300}}));
  EXPECT_EQ(tile_grid(640, 640, 640, 640, 0.2),
            (std::vector<TileRect>{{0, 0, 640, 640}}));
  EXPECT_EQ(tile_grid(1, 1, 640, 640, 0),
            (std::vector<TileRect>{{0, 0, 1, 1}}));
}

TEST(TileGrid, TheLastTileEndsWhereTheImageEndsAndTheRestIsSpreadEvenly) {
  EXPECT_EQ(tile_starts(641, 640, 0.2), (Starts{0, 1}));
  EXPECT_EQ(tile_starts(1152, 640, 0.2), (Starts{0, 512}));
  // One more pixel needs a third tile. The steps are about equal; a step of a
  // single pixel would be wrong.
  EXPECT_EQ(tile_starts(1153, 640, 0.2), (Starts{0, 256, 513}));
  EXPECT_EQ(tile_starts(2250, 640, 0.2), (Starts{0, 402, 805, 1207, 1610}));
  EXPECT_EQ(tile_starts(6, 2, 0), (Starts{0, 2, 4}));
}

TEST(TileGrid, GoesRowByRowAndEachSideHasItsOwnSize) {
  EXPECT_EQ(tile_grid(3, 20, 4, 10, 0),
            (std::vector<TileRect>{{0, 0, 3, 10}, {0, 10, 3, 10}}));
  EXPECT_EQ(tile_grid(4, 4, 2, 2, 0),
            (std::vector<TileRect>{
                {0, 0, 2, 2}, {0, 2, 2, 2}, {2, 0, 2, 2}, {2, 2, 2, 2}}));
}

TEST(TileGrid, OverlapsThatRoundToAWholeTileStillMoveOn) {
  EXPECT_EQ(tile_starts(4, 2, 0.99), (Starts{0, 1, 2}));
}

TEST(TileGrid, KeepsItsPromisesForDrawnSizes) {
  std::mt19937 random(20261122);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 5000; ++round) {
    const int64_t length = draw(1, round % 2 == 0 ? 300 : 30000);
    const int64_t tile = draw(1, round % 3 == 0 ? 40 : 1500);
    const double overlap = static_cast<double>(draw(0, 90)) / 100;
    const Starts starts = tile_starts(length, tile, overlap);
    SCOPED_TRACE(std::to_string(length) + " in tiles of " +
                 std::to_string(tile) + ", overlap " + std::to_string(overlap));
    const int64_t full = std::min(length, tile);
    ASSERT_EQ(starts.front(), 0);
    ASSERT_EQ(starts.back() + full, length);
    if (starts.size() == 1) continue;
    const int64_t least = std::min(
        tile - 1, static_cast<int64_t>(
                      std::llround(static_cast<double>(tile) * overlap)));
    int64_t smallest = length, largest = 0;
    for (size_t i = 1; i < starts.size(); ++i) {
      const int64_t step = starts[i] - starts[i - 1];
      smallest = std::min(smallest, step);
      largest = std::max(largest, step);
    }
    ASSERT_GE(smallest, 1);
    ASSERT_LE(largest - smallest, 1);
    ASSERT_GE(tile - largest, least) << "neighbours overlap too little";
    // With one tile less, some overlap would be below the requested one.
    const auto gaps = static_cast<int64_t>(starts.size()) - 1;
    ASSERT_GT(length - tile, (gaps - 1) * (tile - least));
  }
}

}  // namespace
}  // namespace headroom::tiles
