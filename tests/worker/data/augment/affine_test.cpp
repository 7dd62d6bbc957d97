#include "worker/data/augment/affine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker/data/data_files.h"

namespace headroom::augment {
namespace {

configs::Hyperparameters still() {
  configs::Hyperparameters hyp;
  hyp.translate = hyp.scale = hyp.degrees = hyp.shear = hyp.perspective = 0;
  return hyp;
}

sampling::RandomStream stream(uint64_t sample = 0) {
  return {3, 0, sample, sampling::RandomPurpose::kAugmentation};
}

Warp scaled(double factor) {
  Warp warp;
  warp.scale = factor;
  warp.matrix(0, 0) = warp.matrix(1, 1) = factor;
  return warp;
}

TEST(Affine, NothingSwitchedOnChangesNothing) {
  sampling::RandomStream draws = stream();
  const Warp warp = draw_warp(still(), {48, 64}, {48, 64}, draws);
  EXPECT_EQ(warp.matrix, cv::Matx33d::eye());
  const labels::BoxedImage image{test_picture(48, 64, 1),
                                 {{1, 10, 10, 30, 40}}};
  const labels::BoxedImage result = apply_warp(image, warp, {48, 64});
  EXPECT_TRUE(same_pixels(result.pixels, image.pixels));
  EXPECT_EQ(result.boxes, image.boxes);
}

TEST(Affine, CutsTheMiddleOutOfAMosaic) {
  sampling::RandomStream draws = stream();
  const Warp warp = draw_warp(still(), {96, 128}, {48, 64}, draws);
  const labels::BoxedImage canvas{test_picture(96, 128, 1),
                                  {{2, 40, 30, 70, 60}}};
  const labels::BoxedImage result = apply_warp(canvas, warp, {48, 64});
  EXPECT_TRUE(same_pixels(result.pixels,
                          canvas.pixels(cv::Rect(32, 24, 64, 48)).clone()));
  EXPECT_EQ(result.boxes.at(0), (labels::PixelBox{2, 8, 6, 38, 36}));
}

TEST(Affine, DrawsStayInTheirRanges) {
  configs::Hyperparameters hyp = still();
  hyp.scale = 0.5;
  hyp.translate = 0.1;
  double lowest = 2, highest = 0, furthest = 0;
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    sampling::RandomStream draws = stream(sample);
    const Warp warp = draw_warp(hyp, {200, 200}, {100, 100}, draws);
    lowest = std::min(lowest, warp.scale);
    highest = std::max(highest, warp.scale);
    // The centre is moved to 0.5 +- 0.1 of the target.
    const cv::Vec3d centre = warp.matrix * cv::Vec3d(100, 100, 1);
    furthest = std::max(furthest, std::abs(centre[0] - 50));
    furthest = std::max(furthest, std::abs(centre[1] - 50));
  }
  EXPECT_GE(lowest, 0.5);
  EXPECT_LT(lowest, 0.51);
  EXPECT_LE(highest, 1.5);
  EXPECT_GT(highest, 1.49);
  EXPECT_LE(furthest, 10 + 1e-9);
  EXPECT_GT(furthest, 9.9);
}

// A rotation by 90 degrees moves a point from the right of the centre to above
// the centre.
TEST(Affine, RotatesAsOpenCvDoes) {
  Warp warp;
  warp.matrix = cv::Matx33d(0, 1, 0, -1, 0, 100, 0, 0, 1);
  const auto boxes = warp_boxes({{0, 80, 40, 100, 60}}, warp, {100, 100});
  EXPECT_EQ(boxes.at(0), (labels::PixelBox{0, 40, 0, 60, 20}));
}

TEST(Affine, TheHullOfARotatedBoxIsItsLabel) {
  configs::Hyperparameters hyp = still();
  hyp.degrees = 45;
  sampling::RandomStream draws = stream();
  Warp warp = draw_warp(hyp, {100, 100}, {100, 100}, draws);
  const double cosine = std::abs(warp.matrix(0, 0));
  const double sine = std::abs(warp.matrix(0, 1));
  const auto boxes = warp_boxes({{0, 40, 45, 60, 55}}, warp, {100, 100});
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_NEAR(boxes[0].width(), 20 * cosine + 10 * sine, 1e-9);
  EXPECT_NEAR(boxes[0].height(), 20 * sine + 10 * cosine, 1e-9);
}

TEST(Affine, BoxesThatAreTooSmallAreDropped) {
  const auto left = [](const labels::PixelBox& box, const Warp& warp) {
    return warp_boxes({box}, warp, {100, 100}).size();
  };
  const Warp same;
  EXPECT_EQ(left({0, 10, 10, 12, 40}, same), 0u);  // not more than 2 px wide
  EXPECT_EQ(left({0, 10, 10, 12.1, 40}, same), 1u);
  EXPECT_EQ(left({0, 95, 0, 195, 50}, same), 0u);  // 5 % left
  EXPECT_EQ(left({0, 85, 0, 185, 50}, same), 1u);  // 15 % left
  EXPECT_EQ(left({0, 200, 200, 250, 250}, same), 0u);
  // A box is dropped if it keeps too little of its area. The warp's scale is
  // divided out before, so a box that the warp only shrinks is kept.
  EXPECT_EQ(left({0, 10, 10, 90, 90}, scaled(0.2)), 1u);
  Warp thin;
  thin.matrix(1, 1) = 0.025;
  EXPECT_EQ(left({0, 0, 0, 100, 90}, thin), 0u);  // aspect
}

TEST(Affine, OutsideIsGray) {
  const labels::BoxedImage image{cv::Mat::zeros(40, 40, CV_8UC3), {}};
  const labels::BoxedImage result = apply_warp(image, scaled(0.5), {40, 40});
  EXPECT_EQ(result.pixels.at<cv::Vec3b>(35, 35), cv::Vec3b(114, 114, 114));
  EXPECT_EQ(result.pixels.at<cv::Vec3b>(5, 5), cv::Vec3b(0, 0, 0));
}

TEST(Affine, PerspectiveMovesBoxesAndPixelsAlike) {
  configs::Hyperparameters hyp = still();
  hyp.perspective = 0.001;
  sampling::RandomStream draws = stream(4);
  const Warp warp = draw_warp(hyp, {200, 200}, {200, 200}, draws);
  EXPECT_NE(warp.matrix(2, 0), 0);
  cv::Mat black = cv::Mat::zeros(200, 200, CV_8UC3);
  black(cv::Rect(120, 60, 40, 50)).setTo(cv::Scalar::all(255));
  const labels::BoxedImage result =
      apply_warp({black, {{0, 120, 60, 160, 110}}}, warp, {200, 200});
  ASSERT_EQ(result.boxes.size(), 1u);
  labels::PixelBox seen{0, 200, 200, 0, 0};
  for (int y = 0; y < 200; ++y) {
    for (int x = 0; x < 200; ++x) {
      if (result.pixels.at<cv::Vec3b>(y, x)[0] < 200) continue;
      seen = {0, std::min<double>(seen.x1, x), std::min<double>(seen.y1, y),
              std::max<double>(seen.x2, x + 1),
              std::max<double>(seen.y2, y + 1)};
    }
  }
  EXPECT_NEAR(seen.x1, result.boxes[0].x1, 2);
  EXPECT_NEAR(seen.y1, result.boxes[0].y1, 2);
  EXPECT_NEAR(seen.x2, result.boxes[0].x2, 2);
  EXPECT_NEAR(seen.y2, result.boxes[0].y2, 2);
}

}  // namespace
}  // namespace headroom::augment
