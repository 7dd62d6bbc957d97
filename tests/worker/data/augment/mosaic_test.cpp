#include "worker/data/augment/mosaic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "tests/worker/data/data_files.h"
#include "worker/data/augment/affine.h"

namespace headroom::augment {
namespace {

constexpr codecs::ImageSize kCanvas{200, 300};

labels::BoxedImage drawn(const Mosaic& mosaic, codecs::ImageSize size) {
  return {warp_tiles(mosaic.tiles, Warp{}, size.width, {0, size.height}),
          mosaic.boxes};
}

TEST(Mosaic, TilesTouchTheCentreAndAreCutAtTheCanvas) {
  const cv::Point centre(100, 120);
  // Small images fit: only their inner corner is at the centre.
  EXPECT_EQ(mosaic_tile(0, centre, {50, 60}, kCanvas).canvas,
            cv::Rect(40, 70, 60, 50));
  EXPECT_EQ(mosaic_tile(1, centre, {50, 60}, kCanvas).canvas,
            cv::Rect(100, 70, 60, 50));
  EXPECT_EQ(mosaic_tile(2, centre, {50, 60}, kCanvas).canvas,
            cv::Rect(40, 120, 60, 50));
  EXPECT_EQ(mosaic_tile(3, centre, {50, 60}, kCanvas).canvas,
            cv::Rect(100, 120, 60, 50));
  // Large images lose the parts far from the centre.
  const MosaicTile left = mosaic_tile(0, centre, {150, 140}, kCanvas);
  EXPECT_EQ(left.canvas, cv::Rect(0, 0, 100, 120));
  EXPECT_EQ(left.image, cv::Rect(40, 30, 100, 120));
  const MosaicTile right = mosaic_tile(3, centre, {150, 240}, kCanvas);
  EXPECT_EQ(right.canvas, cv::Rect(100, 120, 200, 80));
  EXPECT_EQ(right.image, cv::Rect(0, 0, 200, 80));
}

TEST(Mosaic, DrawsCoverTheirRanges) {
  std::set<int64_t> partners;
  std::array<int, 4> own_place{};
  int lowest = 1000, highest = 0;
  for (uint64_t sample = 0; sample < 4000; ++sample) {
    sampling::RandomStream draws(1, 0, sample,
                                 sampling::RandomPurpose::kAugmentation);
    const MosaicPlan plan = draw_mosaic(
        1000, [&] { return draws.below(10); }, 100, 150, 0, draws);
    EXPECT_GE(plan.centre.y, 50);
    EXPECT_LT(plan.centre.y, 150);
    EXPECT_GE(plan.centre.x, 75);
    EXPECT_LT(plan.centre.x, 225);
    lowest = std::min(lowest, plan.centre.x);
    highest = std::max(highest, plan.centre.x);
    EXPECT_EQ(std::count(plan.samples.begin(), plan.samples.end(), 1000), 1);
    for (size_t i = 0; i < 4; ++i) {
      if (plan.samples[i] == 1000) {
        ++own_place[i];
      } else {
        partners.insert(plan.samples[i]);
      }
    }
  }
  EXPECT_EQ(lowest, 75);
  EXPECT_EQ(highest, 224);
  EXPECT_EQ(partners.size(), 10u);
  for (const int count : own_place) EXPECT_NEAR(count, 1000, 140);
}

TEST(Mosaic, PixelsAndBoxesMoveTogether) {
  const cv::Mat first = test_picture(60, 80, 1);
  const std::vector<labels::BoxLabel> labels{{1, 0.5f, 0.5f, 0.5f, 0.5f}};
  const LoadImage load = [&](int64_t sample) {
    LoadedImage image;
    image.source = {60, 80};
    image.pixels =
        sample == 0 ? first
                    : cv::Mat(60, 80, CV_8UC3, cv::Scalar::all(10.0 * sample));
    if (sample == 0) image.labels = labels;
    if (sample == 3) image.fault = "three is broken";
    return image;
  };
  MosaicPlan plan;
  plan.centre = {70, 50};
  plan.samples = {1, 2, 3, 0};
  std::vector<std::string> faults;
  const labels::BoxedImage canvas = drawn(
      build_mosaic(plan, 64, 80, codecs::kAllRows, load, faults), {128, 160});
  EXPECT_EQ(faults, std::vector<std::string>{"three is broken"});
  EXPECT_TRUE(
      same_pixels(canvas.pixels(cv::Rect(70, 50, 80, 60)).clone(), first));
  ASSERT_EQ(canvas.boxes.size(), 1u);
  EXPECT_EQ(canvas.boxes[0], (labels::PixelBox{1, 90, 65, 130, 95}));
  EXPECT_EQ(canvas.pixels.at<cv::Vec3b>(49, 69)[0], 10);
  EXPECT_EQ(canvas.pixels.at<cv::Vec3b>(49, 70)[0], 20);
  EXPECT_EQ(canvas.pixels.at<cv::Vec3b>(50, 69)[0], 30);
  EXPECT_EQ(canvas.pixels.at<cv::Vec3b>(127, 159)[0], 114);
}

// If only some rows of the canvas are requested, a tile holds no other rows.
TEST(Mosaic, SomeRowsOfTheCanvasAreThoseOfTheWhole) {
  const LoadImage load = [&](int64_t sample) {
    LoadedImage image;
    image.source = {60, 80};
    image.pixels = test_picture(60, 80, static_cast<int>(sample));
    return image;
  };
  MosaicPlan plan;
  plan.centre = {70, 50};
  plan.samples = {1, 2, 3, 0};
  std::vector<std::string> faults;
  const cv::Mat whole =
      drawn(build_mosaic(plan, 64, 80, codecs::kAllRows, load, faults),
            {128, 160})
          .pixels;
  for (const codecs::PixelRows rows :
       {codecs::PixelRows{0, 20}, codecs::PixelRows{40, 70},
        codecs::PixelRows{49, 51}, codecs::PixelRows{111, 128}}) {
    const Mosaic part = build_mosaic(plan, 64, 80, rows, load, faults);
    for (const PlacedTile& tile : part.tiles) {
      EXPECT_LE(tile.pixels.rows, rows.size());
    }
    EXPECT_TRUE(same_pixels(warp_tiles(part.tiles, Warp{}, 160, rows),
                            rows_of(whole, rows).clone()));
  }
}

TEST(Mosaic, BoxesAreClippedToTheCanvas) {
  const std::vector<labels::BoxLabel> labels{{0, 0.5f, 0.5f, 1, 1}};
  const LoadImage load = [&](int64_t) {
    LoadedImage image;
    image.source = {64, 64};
    image.pixels = cv::Mat::zeros(64, 64, CV_8UC3);
    image.labels = labels;
    return image;
  };
  MosaicPlan plan;
  plan.centre = {32, 32};
  std::vector<std::string> faults;
  const Mosaic canvas =
      build_mosaic(plan, 64, 64, codecs::kAllRows, load, faults);
  EXPECT_EQ(canvas.boxes[0], (labels::PixelBox{0, 0, 0, 32, 32}));
  EXPECT_EQ(canvas.boxes[3], (labels::PixelBox{0, 32, 32, 96, 96}));
}

TEST(MosaicOfNine, ImagesArePushedTowardsTheMiddleOne) {
  constexpr codecs::ImageSize kImage{40, 60};  // places of 100 x 150
  const auto place = [&](int which, cv::Point corner) {
    return mosaic_tile_of_nine(which, corner, kImage, kCanvas);
  };
  const cv::Point corner(50, 30);
  // The bottom right corner of the top left image touches the top left corner
  // of the middle place, before `corner` is subtracted.
  EXPECT_EQ(place(0, corner).canvas,
            cv::Rect(150 - 60 - 50, 100 - 40 - 30, 60, 40));
  EXPECT_EQ(place(4, corner).canvas,
            cv::Rect(150 + 45 - 50, 100 + 30 - 30, 60, 40));
  EXPECT_EQ(place(8, {100, 60}).canvas, cv::Rect(200, 140, 60, 40));
  // A tile is cut at the canvas's edge, or is empty if it lies outside.
  const MosaicTile cut = place(0, {120, 80});
  EXPECT_EQ(cut.canvas, cv::Rect(0, 0, 30, 20));
  EXPECT_EQ(cut.image, cv::Rect(30, 20, 30, 20));
  const MosaicTile gone = mosaic_tile_of_nine(8, {0, 0}, kImage, kCanvas);
  EXPECT_TRUE(gone.canvas.empty());
  EXPECT_EQ(gone.canvas.tl(), cv::Point(300, 200));
}

TEST(MosaicOfNine, DrawsNineWithTheirProbability) {
  int nine = 0;
  for (uint64_t sample = 0; sample < 1000; ++sample) {
    sampling::RandomStream draws(1, 0, sample,
                                 sampling::RandomPurpose::kAugmentation);
    const MosaicPlan plan = draw_mosaic(
        1000, [&] { return draws.below(10); }, 100, 150, 0.3, draws);
    EXPECT_EQ(std::count(plan.samples.begin(), plan.samples.end(), 1000), 1);
    if (plan.samples.size() == 4) continue;
    ASSERT_EQ(plan.samples.size(), 9u);
    ++nine;
    EXPECT_GE(plan.centre.x, 0);
    EXPECT_LT(plan.centre.x, 150);
    EXPECT_GE(plan.centre.y, 0);
    EXPECT_LT(plan.centre.y, 100);
  }
  EXPECT_NEAR(nine, 300, 60);
}

TEST(MosaicOfNine, PixelsAndBoxesMoveTogether) {
  const std::vector<labels::BoxLabel> labels{{1, 0.5f, 0.5f, 0.5f, 0.5f}};
  const LoadImage load = [&](int64_t sample) {
    LoadedImage image;
    image.source = {64, 80};
    image.pixels = cv::Mat(64, 80, CV_8UC3, cv::Scalar::all(10.0 * sample + 5));
    image.labels = labels;
    return image;
  };
  MosaicPlan plan;
  plan.centre = {40, 32};  // half of the first place
  plan.samples = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::string> faults;
  const Mosaic mosaic =
      build_mosaic(plan, 64, 80, codecs::kAllRows, load, faults);
  const cv::Mat canvas = drawn(mosaic, {128, 160}).pixels;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      const int x = std::min(column * 80, 159);
      const int y = std::min(row * 64, 127);
      EXPECT_EQ(canvas.at<cv::Vec3b>(y, x)[0], 10 * (3 * row + column) + 5)
          << row << " " << column;
    }
  }
  ASSERT_EQ(mosaic.boxes.size(), 9u);
  EXPECT_EQ(mosaic.boxes[4], (labels::PixelBox{1, 60, 48, 100, 80}));
  EXPECT_EQ(mosaic.boxes[0], (labels::PixelBox{1, 0, 0, 20, 16})) << "clipped";
}

}  // namespace
}  // namespace headroom::augment
