// Boxes of overlapping tiles become those of the image.
#include "worker/detect/detector.h"

#include <gtest/gtest.h>

#include <random>

namespace headroom::detect {
namespace {

const MergeOptions kUsual{.iou_threshold = 0.45, .max_detections = 1000};

metrics::Detection at(float x1, float y1, float x2, float y2, float confidence,
                      int32_t class_index = 0) {
  return {{x1, y1, x2, y2}, confidence, class_index};
}

TEST(TileMerge, ABoxAtAnInnerBorderIsCutAndAtTheImagesEdgeIsNot) {
  const tiles::TileRect first{0, 0, 100, 100}, last{0, 80, 100, 100};
  const int64_t height = 100, width = 180;
  EXPECT_FALSE(is_cut({0, 0, 20, 20}, first, height, width));
  EXPECT_TRUE(is_cut({90, 10, 100, 20}, first, height, width));
  EXPECT_TRUE(is_cut({90, 10, 98.5F, 20}, first, height, width));
  EXPECT_FALSE(is_cut({70, 10, 97, 20}, first, height, width));
  EXPECT_TRUE(is_cut({80, 10, 90, 20}, last, height, width));
  EXPECT_FALSE(is_cut({170, 10, 180, 100}, last, height, width));
}

TEST(TileMerge, TwoViewsOfOneObjectAreOne) {
  const auto merged = merge_tiles(
      {{at(10, 10, 30, 30, .6F), false}, {at(10.5F, 10, 30, 31, .8F), false}},
      kUsual);
  ASSERT_EQ(merged.size(), 1u);
  EXPECT_EQ(merged[0].confidence, .8F);
}

// The piece has the higher confidence, but the whole box must be kept.
TEST(TileMerge, AWholeBoxReplacesAPieceOfHigherConfidence) {
  const auto merged = merge_tiles(
      {{at(10, 10, 18, 30, .9F), true}, {at(10, 10, 30, 30, .5F), false}},
      kUsual);
  ASSERT_EQ(merged.size(), 1u);
  EXPECT_EQ(merged[0].box.x2, 30);
}

TEST(TileMerge, SmallWholeThingsOnALargeOneStay) {
  const auto merged = merge_tiles(
      {{at(0, 0, 50, 50, .9F), false}, {at(10, 10, 18, 18, .5F), false}},
      kUsual);
  EXPECT_EQ(merged.size(), 2u);
}

TEST(TileMerge, ClassesAreApartUnlessAgnostic) {
  const std::vector<TileDetection> all = {{at(10, 10, 30, 30, .6F, 0), false},
                                          {at(10, 10, 30, 30, .8F, 1), false}};
  EXPECT_EQ(merge_tiles(all, kUsual).size(), 2u);
  MergeOptions agnostic = kUsual;
  agnostic.agnostic = true;
  ASSERT_EQ(merge_tiles(all, agnostic).size(), 1u);
  EXPECT_EQ(merge_tiles(all, agnostic)[0].class_index, 1);
}

// YOLOv5 separates classes by 7680 px in float32, which mixes them in larger
// images.
TEST(TileMerge, FarCoordinatesAndHighClassesAreNoDifferent) {
  const float x = 100'000;
  const auto merged = merge_tiles(
      {{at(x, x, x + 20, x + 20, .6F, 79), false},
       {at(x + 1, x, x + 20, x + 20, .7F, 79), false},
       {at(x - 7680, x - 7680, x - 7660, x - 7660, .5F, 78), false}},
      kUsual);
  EXPECT_EQ(merged.size(), 2u);
}

TEST(TileMerge, AtMostSoManyByConfidence) {
  std::vector<TileDetection> all;
  for (int i = 0; i < 10; ++i) {
    const auto x = static_cast<float>(i * 30);
    all.push_back(
        {at(x, 0, x + 20, 20, .1F * static_cast<float>(i)), i % 2 == 0});
  }
  MergeOptions options = kUsual;
  options.max_detections = 3;
  const auto merged = merge_tiles(all, options);
  ASSERT_EQ(merged.size(), 3u);
  EXPECT_EQ(merged[0].box.x1, 270);
  EXPECT_EQ(merged[2].box.x1, 210);
}

// No object is larger than the overlap, and each is found in every tile that it
// touches.
TEST(TileMerge, EveryObjectOnceForAnyTiles) {
  std::mt19937 random(3);
  const auto draw = [&](int n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    const int height = 200 + draw(800), width = 200 + draw(800);
    std::vector<metrics::Detection> objects;
    for (int y = 20; y + 60 < height; y += 60) {
      for (int x = 20; x + 60 < width; x += 60) {
        const auto left = static_cast<float>(x + draw(20));
        const auto top = static_cast<float>(y + draw(20));
        objects.push_back(at(left, top,
                             left + 10 + static_cast<float>(draw(26)),
                             top + 10 + static_cast<float>(draw(26)), .9F));
      }
    }
    std::vector<TileDetection> all;
    for (const tiles::TileRect& tile :
         tiles::tile_grid(height, width, 160, 192, 0.25)) {
      const auto left = static_cast<float>(tile.x);
      const auto top = static_cast<float>(tile.y);
      for (const metrics::Detection& object : objects) {
        metrics::Detection seen = object;
        seen.box = {
            std::max(object.box.x1, left), std::max(object.box.y1, top),
            std::min(object.box.x2, left + static_cast<float>(tile.width)),
            std::min(object.box.y2, top + static_cast<float>(tile.height))};
        if (seen.box.x2 - seen.box.x1 < 2 || seen.box.y2 - seen.box.y1 < 2) {
          continue;
        }
        seen.confidence = .3F + .01F * static_cast<float>(draw(60));
        all.push_back({seen, is_cut(seen.box, tile, height, width)});
      }
    }
    const auto merged = merge_tiles(all, kUsual);
    ASSERT_EQ(merged.size(), objects.size()) << height << " x " << width;
    for (const metrics::Detection& one : merged) {
      EXPECT_TRUE(std::any_of(objects.begin(), objects.end(),
                              [&](const metrics::Detection& object) {
                                return object.box.x1 == one.box.x1 &&
                                       object.box.y2 == one.box.y2 &&
                                       object.box.x2 == one.box.x2 &&
                                       object.box.y1 == one.box.y1;
                              }));
    }
  }
}

}  // namespace
}  // namespace headroom::detect
