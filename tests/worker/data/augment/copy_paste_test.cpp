#include "worker/data/augment/copy_paste.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <opencv2/imgproc.hpp>
#include <set>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/made_images.h"
#include "worker/data/augment/affine.h"
#include "worker/data/augment/augment.h"
#include "worker/data/augment/mosaic.h"

namespace headroom::augment {
namespace {

sampling::RandomStream draws_of(uint64_t sample) {
  return {1, 0, sample, sampling::RandomPurpose::kCopyPaste};
}

PixelOutline rectangle(double x1, double y1, double x2, double y2) {
  return {{x1, y1}, {x2, y1}, {x2, y2}, {x1, y2}};
}

TEST(CopyPaste, DrawsARoundedShareWithoutRepetition) {
  // Small boxes on the left, each in a row of its own: all may be pasted.
  std::vector<labels::PixelBox> left;
  std::vector<OutlinedBox> objects;
  for (size_t i = 0; i < 10; ++i) {
    const double y = 10.0 * static_cast<double>(i);
    left.push_back({static_cast<int32_t>(i), 5, y, 15, y + 8});
    objects.push_back({i, rectangle(5, y, 15, y + 8)});
  }
  std::set<int32_t> drawn;
  // 2.5 and 3.5 are rounded to the even number.
  for (const auto& [share, count] :
       {std::pair{0.0, 0u}, {0.04, 0u}, {0.25, 2u}, {0.35, 4u}, {1.0, 10u}}) {
    for (uint64_t sample = 0; sample < 50; ++sample) {
      std::vector<labels::PixelBox> boxes = left;
      sampling::RandomStream draws = draws_of(sample);
      const auto pastes = draw_pastes(share, 100, objects, boxes, draws);
      ASSERT_EQ(pastes.size(), count);
      ASSERT_EQ(boxes.size(), 10 + count);
      std::set<int32_t> classes;
      for (size_t i = 10; i < boxes.size(); ++i) {
        classes.insert(boxes[i].class_index);
        EXPECT_EQ(boxes[i].x1, 85);
        EXPECT_EQ(boxes[i].x2, 95);
        EXPECT_EQ(boxes[i].y1, 10.0 * boxes[i].class_index);
      }
      EXPECT_EQ(classes.size(), count) << "each once";
      if (count == 2) drawn.insert(classes.begin(), classes.end());
    }
  }
  EXPECT_EQ(drawn.size(), 10u);
}

TEST(CopyPaste, NoBoxIsHiddenByThreeTenthsOfItsArea) {
  const std::vector<OutlinedBox> objects{{0, rectangle(10, 10, 20, 20)}};
  const auto is_pasted = [&](const labels::PixelBox& other) {
    std::vector<labels::PixelBox> boxes{{0, 10, 10, 20, 20}, other};
    sampling::RandomStream draws = draws_of(0);
    return !draw_pastes(1, 100, objects, boxes, draws).empty();
  };
  // The mirrored box extends from 80 to 90 in x and from 10 to 20 in y.
  EXPECT_TRUE(is_pasted({1, 50, 10, 79, 20}));
  EXPECT_TRUE(is_pasted({1, 80, 10, 90, 44})) << "10 of 34 rows";
  EXPECT_FALSE(is_pasted({1, 80, 10, 90, 43})) << "10 of 33 rows";
  EXPECT_FALSE(is_pasted({1, 84, 14, 86, 16})) << "all of it";
  EXPECT_TRUE(is_pasted({1, 0, 0, 100, 100})) << "a hundredth";
  // An object in the middle is not pasted, because its mirror image would hide
  // the object itself.
  const std::vector<OutlinedBox> middle{{0, rectangle(45, 10, 55, 20)}};
  std::vector<labels::PixelBox> boxes{{0, 45, 10, 55, 20}};
  sampling::RandomStream draws = draws_of(0);
  EXPECT_TRUE(draw_pastes(1, 100, middle, boxes, draws).empty());
  EXPECT_EQ(boxes.size(), 1u);
  // Pasted objects must not be hidden either, so only one of two overlapping
  // objects is pasted.
  const std::vector<OutlinedBox> twins{{0, rectangle(10, 10, 20, 20)},
                                       {1, rectangle(11, 10, 21, 20)}};
  boxes = {{0, 10, 10, 20, 20}, {1, 11, 10, 21, 20}};
  EXPECT_EQ(draw_pastes(1, 100, twins, boxes, draws).size(), 1u);
  EXPECT_EQ(boxes.size(), 3u);
}

TEST(CopyPaste, PixelsUnderTheMirroredOutlineAreThoseOfTheObject) {
  const cv::Mat before = test_picture(40, 60, 1);
  cv::Mat pixels = before.clone();
  // A triangle: row y has pixels from 40 to 40 + y - 10.
  const std::vector<PixelOutline> outlines{{{40, 10}, {60, 30}, {40, 30}}};
  paste_mirrored(pixels, 0, outlines);
  for (int y = 0; y < 40; ++y) {
    for (int x = 0; x < 60; ++x) {
      const bool inside = y >= 10 && y < 30 && x >= 40 && x - 40 < y - 10;
      EXPECT_EQ(pixels.at<cv::Vec3b>(y, x),
                before.at<cv::Vec3b>(y, inside ? 59 - x : x))
          << x << " " << y;
    }
  }
  // A call for some rows gives the same pixels as a call for all rows.
  cv::Mat rows = before.rowRange(17, 25).clone();
  paste_mirrored(rows, 17, outlines);
  EXPECT_TRUE(same_pixels(rows, pixels.rowRange(17, 25)));
}

TEST(CopyPaste, LinesThereAndBackJoinPartsAndOverlapsAreNoSource) {
  const cv::Mat before = test_picture(20, 40, 2);
  cv::Mat pixels = before.clone();
  // One outline contains two squares, which are mirror images of each other.
  PixelOutline parts = rectangle(4, 4, 10, 10);
  parts.push_back(parts[0]);
  for (const cv::Point2d& point : rectangle(30, 4, 36, 10)) {
    parts.push_back(point);
  }
  parts.emplace_back(30, 4);
  parts.push_back(parts[0]);
  paste_mirrored(pixels, 0, std::vector<PixelOutline>{parts});
  for (int y = 0; y < 20; ++y) {
    for (int x = 0; x < 40; ++x) {
      const bool inside =
          y >= 4 && y < 10 && ((x >= 4 && x < 10) || (x >= 30 && x < 36));
      EXPECT_EQ(pixels.at<cv::Vec3b>(y, x),
                before.at<cv::Vec3b>(y, inside ? 39 - x : x))
          << x << " " << y;
    }
  }
}

// A picture with a drawn diamond, labelled as a polygon.
class CopyPasteSamples : public ::testing::Test {
 protected:
  static constexpr int kSide = 64;
  static constexpr int64_t kSamples = 5;

  LoadedImage load(int64_t sample) const {
    LoadedImage image;
    image.source = {kSide, kSide};
    image.pixels = test_picture(kSide, kSide, sample);
    const std::vector<cv::Point> diamond{
        {10, 16}, {16, 10}, {22, 16}, {16, 22}};
    cv::fillConvexPoly(image.pixels, diamond, cv::Scalar(250, 0, 0));
    image.labels = labels_;
    if (outlined_) image.outlines = labels::Outlines(ends_, 0, points_.data());
    return image;
  }
  NetworkSample made(int64_t sample, const configs::Hyperparameters& hyp,
                     codecs::PixelRows rows = {0, kSide}) {
    MadeImages images([this](int64_t i) { return load(i); });
    return make_mosaic_sample({3, 0, sample}, kSamples, kSide, kSide, rows, hyp,
                              images);
  }

  const std::vector<labels::BoxLabel> labels_{{1, .25f, .25f, .1875f, .1875f},
                                              {0, .5f, .5f, .1f, .1f}};
  const std::vector<labels::IndexedPoint> points_{{10 / 64.f, 16 / 64.f},
                                                  {16 / 64.f, 10 / 64.f},
                                                  {22 / 64.f, 16 / 64.f},
                                                  {16 / 64.f, 22 / 64.f}};
  const std::vector<uint64_t> ends_{4, 4};
  bool outlined_ = true;
};

TEST_F(CopyPasteSamples, TheDiamondIsInTheMosaicOnceMore) {
  MosaicPlan plan;
  plan.centre = {64, 64};
  plan.samples = {0, 1, 2, 3};
  const LoadImage load_image = [this](int64_t i) { return load(i); };
  std::vector<std::string> faults;
  const Mosaic plain =
      build_mosaic(plan, kSide, kSide, codecs::kAllRows, load_image, faults);
  ASSERT_EQ(plain.outlines.size(), 4u);
  EXPECT_EQ(plain.outlines[1].box, 2u) << "the box between has no outline";
  EXPECT_EQ(plain.outlines[1].outline[0], cv::Point2d(74, 16));
  const cv::Mat before = warp_tiles(plain.tiles, Warp{}, 128, {0, 128});

  Mosaic pasted = plain;
  sampling::RandomStream draws = draws_of(0);
  // The objects are at x 10 to 22 and 74 to 86. Their mirror images, at x 106
  // to 118 and 42 to 54, hide no box.
  const auto outlines =
      draw_pastes(1, 128, pasted.outlines, pasted.boxes, draws);
  ASSERT_EQ(outlines.size(), 4u);
  ASSERT_EQ(pasted.boxes.size(), plain.boxes.size() + 4);
  paste_objects(pasted, outlines, 128, {0, 128});
  const cv::Mat after = warp_tiles(pasted.tiles, Warp{}, 128, {0, 128});
  const cv::Vec3b red(250, 0, 0);
  EXPECT_EQ(before.at<cv::Vec3b>(16, 16), red);
  EXPECT_NE(before.at<cv::Vec3b>(16, 111), red);
  for (const cv::Point centre :
       {cv::Point(16, 16), {80, 16}, {111, 16}, {47, 16}, {47, 80}}) {
    EXPECT_EQ(after.at<cv::Vec3b>(centre), red) << centre;
  }
  // Every pixel outside of the outlines is unchanged.
  int changed = 0;
  for (int y = 0; y < 128; ++y) {
    for (int x = 0; x < 128; ++x) {
      const bool inside =
          std::any_of(outlines.begin(), outlines.end(), [&](const auto& edge) {
            std::vector<cv::Point2f> points(edge.begin(), edge.end());
            return cv::pointPolygonTest(points,
                                        {static_cast<float>(x) + .5f,
                                         static_cast<float>(y) + .5f},
                                        true) > .01;
          });
      const bool outside =
          after.at<cv::Vec3b>(y, x) == before.at<cv::Vec3b>(y, x);
      if (inside) {
        EXPECT_EQ(after.at<cv::Vec3b>(y, x), before.at<cv::Vec3b>(y, 127 - x));
      }
      if (!outside) ++changed;
    }
  }
  EXPECT_GT(changed, 4 * 50);  // a diamond of 72 pixels each
  EXPECT_LE(changed, 4 * 84);
}

TEST_F(CopyPasteSamples, ARankMakesItsRowsOfTheSameSample) {
  configs::Hyperparameters hyp;
  hyp.copy_paste = 0.6;
  hyp.mixup = 0.4;
  hyp.mosaic9 = 0.3;
  hyp.flipud = 0.5;
  hyp.degrees = 5;
  configs::Hyperparameters without = hyp;
  without.copy_paste = 0;
  int differ = 0;
  for (int64_t sample = 0; sample < 40; ++sample) {
    const NetworkSample whole = made(sample, hyp);
    for (const codecs::PixelRows rows :
         {codecs::PixelRows{0, 20}, codecs::PixelRows{20, 64}}) {
      const NetworkSample part = made(sample, hyp, rows);
      EXPECT_TRUE(same_pixels(part.pixels, rows_of(whole.pixels, rows)));
      EXPECT_EQ(part.boxes, whole.boxes);
    }
    if (!same_pixels(whole.pixels, made(sample, without).pixels)) ++differ;
  }
  EXPECT_GT(differ, 20);
}

// If images have boxes but no outlines, copy_paste changes no other draw, and
// the samples are equal in every bit.
TEST_F(CopyPasteSamples, BoxesAloneAreUnaffected) {
  outlined_ = false;
  configs::Hyperparameters hyp;
  const NetworkSample plain = made(2, hyp);
  hyp.copy_paste = 1;
  const NetworkSample asked = made(2, hyp);
  EXPECT_TRUE(same_pixels(plain.pixels, asked.pixels));
  EXPECT_EQ(plain.boxes, asked.boxes);
  outlined_ = true;
  hyp.copy_paste = 0;
  EXPECT_TRUE(same_pixels(plain.pixels, made(2, hyp).pixels));
}

}  // namespace
}  // namespace headroom::augment
