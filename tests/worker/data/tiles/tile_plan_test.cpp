// Tests the choice of tiles and boxes: for examples, and as properties that
// hold for random images.
#include "worker/data/tiles/tile_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "worker/data/labels/pixel_box.h"

namespace headroom::tiles {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A box of class 0 with these corners, in an image of 200 x 100. Coordinates
// that are multiples of 3.125 (x) and 1.5625 (y) are exact in float32.
labels::BoxLabel box_at(double x1, double y1, double x2, double y2) {
  return {0, static_cast<float>((x1 + x2) / 2 / 200),
          static_cast<float>((y1 + y2) / 2 / 100),
          static_cast<float>((x2 - x1) / 200),
          static_cast<float>((y2 - y1) / 100)};
}
constexpr codecs::ImageSize kSize{100, 200};

TileOptions tiles_of_100(double min_visible) {
  TileOptions options;
  options.height = options.width = 100;
  options.overlap = 0;
  options.min_visible = min_visible;
  options.empty_share = 0;
  return options;
}

TEST(TilePlan, ABoxIsClippedToEachTileThatShowsEnoughOfIt) {
  // A quarter of the box is in the left tile.
  const labels::BoxLabel box = box_at(87.5, 25, 137.5, 75);
  const TilePlan both = plan_tiles(kSize, {&box, 1}, "a.jpg", tiles_of_100(0));
  ASSERT_THAT(both.tiles, SizeIs(2));
  EXPECT_EQ(both.tiles[0].rect, (TileRect{0, 0, 100, 100}));
  EXPECT_THAT(both.tiles[0].boxes,
              ElementsAre(labels::BoxLabel{0, 0.9375F, 0.5F, 0.125F, 0.5F}));
  EXPECT_EQ(both.tiles[1].rect, (TileRect{0, 100, 100, 100}));
  EXPECT_THAT(both.tiles[1].boxes,
              ElementsAre(labels::BoxLabel{0, 0.1875F, 0.5F, 0.375F, 0.5F}));

  EXPECT_EQ(plan_tiles(kSize, {&box, 1}, "a.jpg", tiles_of_100(0.25)).tiles,
            both.tiles)
      << "exactly as much as is asked for is enough";
  const TilePlan right =
      plan_tiles(kSize, {&box, 1}, "a.jpg", tiles_of_100(0.2501));
  ASSERT_THAT(right.tiles, SizeIs(1));
  EXPECT_EQ(right.tiles[0], both.tiles[1]);
}

TEST(TilePlan, TilesWithPartsThatAreTooSmallAreNoBackground) {
  const labels::BoxLabel box = box_at(75, 25, 125, 75);
  TileOptions options = tiles_of_100(0.75);
  options.empty_share = 1;
  const TilePlan plan = plan_tiles(kSize, {&box, 1}, "a.jpg", options);
  EXPECT_THAT(plan.tiles, IsEmpty());
  EXPECT_EQ(plan.in_grid, 2);
  EXPECT_EQ(plan.without_box, 0);
  EXPECT_EQ(plan.lost_boxes, 1);
}

TEST(TilePlan, ABoxThatOnlyTouchesATileIsNotInIt) {
  const labels::BoxLabel box = box_at(50, 25, 100, 75);
  const TilePlan plan = plan_tiles(kSize, {&box, 1}, "a.jpg", tiles_of_100(0));
  ASSERT_THAT(plan.tiles, SizeIs(1));
  EXPECT_EQ(plan.without_box, 1);
}

TEST(TilePlan, ASmallImageIsOneTileWithItsBoxes) {
  const std::vector<labels::BoxLabel> boxes = {box_at(12.5, 25, 37.5, 75),
                                               box_at(175, 0, 200, 25)};
  const TilePlan plan = plan_tiles(kSize, boxes, "a.jpg", TileOptions{});
  ASSERT_THAT(plan.tiles, SizeIs(1));
  EXPECT_EQ(plan.tiles[0], (PlannedTile{{0, 0, 100, 200}, boxes}));
}

TEST(TilePlan, BoxesThatFillATileAreOneThere) {
  const std::vector<labels::BoxLabel> boxes = {box_at(0, 0, 125, 100),
                                               box_at(0, 0, 150, 100)};
  const TilePlan plan = plan_tiles(kSize, boxes, "a.jpg", tiles_of_100(0));
  ASSERT_THAT(plan.tiles, SizeIs(2));
  EXPECT_THAT(plan.tiles[0].boxes,
              ElementsAre(labels::BoxLabel{0, .5F, .5F, 1, 1}));
  EXPECT_THAT(plan.tiles[1].boxes, SizeIs(2));
}

TEST(TilePlan, EmptyTilesAreChosenByNameAndPlaceAlone) {
  TileOptions options;
  options.overlap = 0.2;
  const auto rects = [&](const std::string& name, double share) {
    options.empty_share = share;
    std::vector<TileRect> result;
    for (const PlannedTile& tile :
         plan_tiles({20000, 20000}, {}, name, options).tiles) {
      result.push_back(tile.rect);
    }
    return result;
  };
  const std::vector<TileRect> all = rects("a.tif", 1);
  const std::vector<TileRect> some = rects("a.tif", 0.25);
  const std::vector<TileRect> fewer = rects("a.tif", 0.1);
  EXPECT_THAT(rects("a.tif", 0), IsEmpty());
  EXPECT_EQ(all, tile_grid(20000, 20000, 640, 640, 0.2));
  EXPECT_EQ(some, rects("a.tif", 0.25));
  EXPECT_NE(some, rects("b.tif", 0.25));
  // There are 1,521 tiles. The bounds are five standard deviations of a random
  // choice.
  const auto expected = [&](double share) {
    return share * static_cast<double>(all.size());
  };
  EXPECT_NEAR(static_cast<double>(some.size()), expected(0.25), 85);
  EXPECT_NEAR(static_cast<double>(fewer.size()), expected(0.1), 60);
  for (const TileRect& tile : fewer) {
    EXPECT_NE(std::find(some.begin(), some.end(), tile), some.end());
  }
}

TEST(TilePlan, RoundingBeyondTheImageIsNoInvisiblePart) {
  const labels::BoxLabel box{0, 0.95F, 0.5F, 0.1000001F, 0.5F};
  ASSERT_GT(double{box.cx} + double{box.w} / 2, 1);
  const TilePlan plan = plan_tiles(kSize, {&box, 1}, "a.jpg", tiles_of_100(1));
  EXPECT_EQ(plan.lost_boxes, 0);
}

// Corners of a label in pixels of the image that its tile was cut from.
labels::PixelBox in_image(const labels::BoxLabel& label, const TileRect& tile) {
  return labels::place_boxes(
      {&label, 1},
      {static_cast<double>(tile.width), static_cast<double>(tile.height),
       static_cast<double>(tile.x), static_cast<double>(tile.y)})[0];
}

double overlap_area(const labels::PixelBox& a, const TileRect& b) {
  const double width = std::min(a.x2, static_cast<double>(b.x + b.width)) -
                       std::max(a.x1, static_cast<double>(b.x));
  const double height = std::min(a.y2, static_cast<double>(b.y + b.height)) -
                        std::max(a.y1, static_cast<double>(b.y));
  return width > 0 && height > 0 ? width * height : 0;
}

TEST(TilePlan, KeepsItsPromisesForDrawnImages) {
  std::mt19937 random(1122);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  int whole_boxes = 0, clipped_boxes = 0;
  for (int round = 0; round < 400; ++round) {
    const codecs::ImageSize size{draw(1, 900), draw(1, 900)};
    TileOptions options;
    options.height = draw(1, 300);
    options.width = draw(1, 300);
    options.overlap = draw(0, 8) / 10.0;
    options.min_visible = draw(0, 10) / 10.0;
    options.empty_share = 1;
    std::vector<labels::BoxLabel> labels;
    for (int i = draw(0, 12); i > 0; --i) {
      // Every label has a class of its own, so that the test can find it in the
      // tiles.
      const int width = draw(1, std::min(size.width, 80));
      const int height = draw(1, std::min(size.height, 80));
      const double x = draw(0, size.width - width) + width / 2.0;
      const double y = draw(0, size.height - height) + height / 2.0;
      labels.push_back(
          {static_cast<int32_t>(labels.size()),
           static_cast<float>(x / size.width),
           static_cast<float>(y / size.height),
           static_cast<float>(width / static_cast<double>(size.width)),
           static_cast<float>(height / static_cast<double>(size.height))});
    }
    const TilePlan plan = plan_tiles(size, labels, "drawn", options);
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<int> seen(labels.size(), 0), whole(labels.size(), 0);
    for (const PlannedTile& tile : plan.tiles) {
      for (const labels::BoxLabel& label : tile.boxes) {
        const auto at = static_cast<size_t>(label.class_index);
        const labels::PixelBox source =
            in_image(labels[at], {0, 0, size.height, size.width});
        const labels::PixelBox part = in_image(label, tile.rect);
        // The label is inside the tile, and is the whole intersection of the
        // box with the tile.
        EXPECT_GE(label.cx - label.w / 2, -labels::kLabelTolerance);
        EXPECT_LE(label.cx + label.w / 2, 1 + labels::kLabelTolerance);
        EXPECT_GE(label.cy - label.h / 2, -labels::kLabelTolerance);
        EXPECT_LE(label.cy + label.h / 2, 1 + labels::kLabelTolerance);
        EXPECT_NEAR(part.width() * part.height(),
                    overlap_area(source, tile.rect), 0.02);
        EXPECT_GE(overlap_area(source, tile.rect) + 0.02,
                  options.min_visible * source.width() * source.height());
        ++seen[at];
        if (part.width() > source.width() - 1e-3 &&
            part.height() > source.height() - 1e-3) {
          ++whole[at];
        }
      }
    }
    int lost = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (seen[i] == 0) ++lost;
      const labels::PixelBox source =
          in_image(labels[i], {0, 0, size.height, size.width});
      // A box no larger than the overlap is whole in some tile. Neighbours
      // never share all of a tile.
      const auto shared = [&](int64_t side) {
        const auto tile = static_cast<double>(side);
        return std::min(tile - 1, std::round(tile * options.overlap));
      };
      const double across = shared(options.width);
      const double down = shared(options.height);
      const bool fits =
          (source.width() <= across || size.width <= options.width) &&
          (source.height() <= down || size.height <= options.height);
      if (fits) {
        EXPECT_GE(whole[i], 1);
      }
      (whole[i] > 0 ? whole_boxes : clipped_boxes) += seen[i] > 0 ? 1 : 0;
    }
    EXPECT_EQ(plan.lost_boxes, lost);
    if (options.min_visible == 0) {
      EXPECT_EQ(lost, 0);
      EXPECT_EQ(static_cast<int64_t>(plan.tiles.size()), plan.in_grid)
          << "with every empty tile, all of the image is there";
    }
  }
  EXPECT_GT(whole_boxes, 500);
  EXPECT_GT(clipped_boxes, 50);
}

}  // namespace
}  // namespace headroom::tiles
