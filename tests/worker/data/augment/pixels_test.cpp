// Tests HSV jitter, flips, mixup, and boxes in pixels.
#include <gtest/gtest.h>

#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/augment/pixel_changes.h"
#include "worker/data/augment/sample_packing.h"
#include "worker/data/augment/sample_recipe.h"
#include "worker/data/labels/pixel_box.h"

namespace headroom::augment {
namespace {

cv::Vec3b jittered(cv::Vec3b colour, const HsvGains& gains) {
  cv::Mat pixel(1, 1, CV_8UC3, cv::Scalar(colour[0], colour[1], colour[2]));
  jitter_hsv(pixel, gains);
  return pixel.at<cv::Vec3b>(0, 0);
}

TEST(Hsv, EachGainActsOnItsChannel) {
  EXPECT_EQ(jittered({10, 20, 30}, {1, 1, 1}), cv::Vec3b(10, 20, 30));
  EXPECT_EQ(jittered({200, 100, 50}, {1, 1, 0.5}), cv::Vec3b(100, 50, 25));
  EXPECT_EQ(jittered({200, 100, 50}, {1, 0, 1}), cv::Vec3b(200, 200, 200));
  EXPECT_EQ(jittered({200, 200, 200}, {1, 1, 2}), cv::Vec3b(255, 255, 255));
  // Green has hue 60 of 180: doubled it is blue, tripled it is red again.
  EXPECT_EQ(jittered({0, 255, 0}, {2, 1, 1}), cv::Vec3b(0, 0, 255));
  EXPECT_EQ(jittered({0, 255, 0}, {3, 1, 1}), cv::Vec3b(255, 0, 0));
}

TEST(Hsv, HueIsAddedModuloATurn) {
  const auto turned = [](double added) {
    return jittered({255, 0, 0}, {.added_hue = added});
  };
  // Red has hue 0, which a factor does not change.
  EXPECT_EQ(turned(60), cv::Vec3b(0, 255, 0));
  EXPECT_EQ(turned(120), cv::Vec3b(0, 0, 255));
  EXPECT_EQ(turned(-60), cv::Vec3b(0, 0, 255));
  EXPECT_EQ(jittered({0, 0, 255}, {.added_hue = 60}), cv::Vec3b(255, 0, 0));
  EXPECT_EQ(turned(-1e-9), cv::Vec3b(255, 0, 0));
}

TEST(Hsv, AddedHueIsAFractionOfATurnAndTakesTheSameDraws) {
  configs::Hyperparameters hyp;
  const auto drawn = [&](uint64_t sample) {
    sampling::RandomStream draws(1, 0, sample,
                                 sampling::RandomPurpose::kAugmentation);
    return draw_hsv_gains(hyp, draws);
  };
  for (uint64_t sample = 0; sample < 100; ++sample) {
    hyp.add_hue = 0;
    const HsvGains factors = drawn(sample);
    hyp.add_hue = 1;
    const HsvGains added = drawn(sample);
    EXPECT_EQ(added.hue, 1);
    EXPECT_NEAR(added.added_hue, 180 * (factors.hue - 1), 1e-12);
    EXPECT_LE(std::abs(added.added_hue), 180 * 0.015);
    EXPECT_EQ(added.saturation, factors.saturation);
    EXPECT_EQ(added.value, factors.value);
  }
}

TEST(Hsv, GainsStayInTheirRanges) {
  configs::Hyperparameters hyp;
  hyp.hsv_h = 0.015;
  hyp.hsv_s = 0.7;
  hyp.hsv_v = 0.4;
  std::array<double, 3> lowest{9, 9, 9}, highest{};
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    sampling::RandomStream draws(1, 0, sample,
                                 sampling::RandomPurpose::kAugmentation);
    const HsvGains drawn = draw_hsv_gains(hyp, draws);
    EXPECT_EQ(drawn.added_hue, 0);
    const std::array gains{drawn.hue, drawn.saturation, drawn.value};
    for (size_t i = 0; i < 3; ++i) {
      lowest[i] = std::min(lowest[i], gains[i]);
      highest[i] = std::max(highest[i], gains[i]);
    }
  }
  const std::array bound{0.015, 0.7, 0.4};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GE(lowest[i], 1 - bound[i]);
    EXPECT_LE(highest[i], 1 + bound[i]);
    EXPECT_LT(lowest[i], 1 - 0.98 * bound[i]);
    EXPECT_GT(highest[i], 1 + 0.98 * bound[i]);
  }
}

TEST(Flip, MirrorsPixelsAndBoxes) {
  const cv::Mat picture = test_picture(20, 30, 1);
  std::vector<labels::NormalizedBox> boxes{{1, 0.25, 0.125, 0.5, 0.25}};
  SampleRecipe recipe = recipe_of(picture);
  EXPECT_TRUE(same_pixels(render_sample(recipe), picture));
  recipe.mirrored = true;
  flip_left_right(boxes);
  EXPECT_EQ(render_sample(recipe).at<cv::Vec3b>(3, 0),
            picture.at<cv::Vec3b>(3, 29));
  EXPECT_EQ(boxes[0], (labels::NormalizedBox{1, 0.75, 0.125, 0.5, 0.25}));
  recipe.upside_down = true;
  flip_up_down(boxes);
  EXPECT_EQ(render_sample(recipe).at<cv::Vec3b>(0, 0),
            picture.at<cv::Vec3b>(19, 29));
  EXPECT_EQ(boxes[0], (labels::NormalizedBox{1, 0.75, 0.875, 0.5, 0.25}));
}

TEST(Mixup, BlendsPixels) {
  cv::Mat pixels(2, 2, CV_8UC3, cv::Scalar::all(100));
  mix_in(pixels, cv::Mat(2, 2, CV_8UC3, cv::Scalar::all(201)), 0.5);
  EXPECT_EQ(pixels.at<cv::Vec3b>(1, 1), cv::Vec3b(150, 150, 150));
  EXPECT_THROW(mix_in(pixels, cv::Mat::zeros(3, 2, CV_8UC3), 0.5),
               CheckFailure);
}

// Beta(32, 32): mean 1/2, variance 1 / (4 x 65).
TEST(Mixup, RatiosHaveTheirDistribution) {
  double sum = 0, squares = 0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    sampling::RandomStream draws(1, 0, static_cast<uint64_t>(i),
                                 sampling::RandomPurpose::kAugmentation);
    const double ratio = draw_mixup_ratio(draws) - 0.5;
    sum += ratio;
    squares += ratio * ratio;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.005);
  EXPECT_NEAR(squares / kDraws, 1.0 / 260, 0.0005);
}

TEST(PixelBox, NormalizesWithinTheImage) {
  const auto boxes = labels::normalize_boxes(
      {{2, -10, 10, 50, 30}, {0, 60, 0, 120, 40}}, 100, 40);
  EXPECT_EQ(boxes[0], (labels::NormalizedBox{2, 0.25, 0.5, 0.5, 0.5}));
  EXPECT_NEAR(boxes[1].cx + boxes[1].w / 2, 1 - 1e-5, 1e-12);
  EXPECT_NEAR(boxes[1].cy + boxes[1].h / 2, 1 - 2.5e-5, 1e-12);
}

TEST(PixelBox, PlacesLabels) {
  const std::vector<labels::BoxLabel> labels{{1, 0.5f, 0.25f, 0.5f, 0.5f}};
  EXPECT_EQ(labels::place_boxes(labels, {100, 40, 7, 3}).at(0),
            (labels::PixelBox{1, 32, 3, 82, 23}));
}

}  // namespace
}  // namespace headroom::augment
