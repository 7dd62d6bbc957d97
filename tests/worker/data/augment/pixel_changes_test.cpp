#include "worker/data/augment/pixel_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <opencv2/core.hpp>

#include "tests/worker/data/data_files.h"

namespace headroom::augment {
namespace {

cv::Mat changed(const cv::Mat& picture, const PixelChanges& changes) {
  cv::Mat result = picture.clone();
  change_pixels(result, changes);
  return result;
}

sampling::RandomStream stream(uint64_t sample) {
  return {5, 0, sample, sampling::RandomPurpose::kAugmentation};
}

TEST(PixelChanges, WithoutProbabilitiesNoDrawIsTaken) {
  sampling::RandomStream draws = stream(1), other = stream(1);
  EXPECT_EQ(draw_pixel_changes({}, draws), PixelChanges());
  EXPECT_EQ(draws.bits(), other.bits());
  const cv::Mat picture = test_picture(20, 30, 1);
  EXPECT_TRUE(same_pixels(changed(picture, {}), picture));
}

TEST(PixelChanges, DrawsHaveTheirProbabilitiesAndRanges) {
  configs::Hyperparameters hyp;
  hyp.blur = hyp.median_blur = hyp.gray = hyp.clahe = 0.25;
  int blur = 0, median = 0, gray = 0, clahe = 0;
  for (uint64_t sample = 0; sample < 4000; ++sample) {
    sampling::RandomStream draws = stream(sample);
    const PixelChanges one = draw_pixel_changes(hyp, draws);
    blur += one.blur > 0;
    median += one.median_blur > 0;
    gray += one.gray;
    clahe += one.clahe > 0;
    for (const int side : {one.blur, one.median_blur}) {
      EXPECT_TRUE(side == 0 || side == 3 || side == 5 || side == 7) << side;
    }
    if (one.clahe > 0) {
      EXPECT_GE(one.clahe, 1);
      EXPECT_LT(one.clahe, 4);
    }
  }
  for (const int count : {blur, median, gray, clahe}) {
    EXPECT_NEAR(count, 1000, 140);
  }
}

TEST(PixelChanges, BlurIsTheRoundedMean) {
  const cv::Mat picture = test_picture(20, 30, 1);
  const cv::Mat result = changed(picture, {.blur = 3});
  for (int y = 1; y < 19; ++y) {
    for (int x = 1; x < 29; ++x) {
      for (int c = 0; c < 3; ++c) {
        int sum = 0;
        for (int dy = -1; dy <= 1; ++dy) {
          for (int dx = -1; dx <= 1; ++dx) {
            sum += picture.at<cv::Vec3b>(y + dy, x + dx)[c];
          }
        }
        EXPECT_EQ(result.at<cv::Vec3b>(y, x)[c], (2 * sum + 9) / 18);
      }
    }
  }
}

TEST(PixelChanges, MedianIsTheMiddle) {
  const cv::Mat picture = test_picture(20, 30, 2);
  const cv::Mat result = changed(picture, {.median_blur = 5});
  for (int y = 2; y < 18; ++y) {
    for (int x = 2; x < 28; ++x) {
      std::vector<int> values;
      for (int dy = -2; dy <= 2; ++dy) {
        for (int dx = -2; dx <= 2; ++dx) {
          values.push_back(picture.at<cv::Vec3b>(y + dy, x + dx)[1]);
        }
      }
      std::sort(values.begin(), values.end());
      EXPECT_EQ(result.at<cv::Vec3b>(y, x)[1], values[12]);
    }
  }
}

TEST(PixelChanges, GrayHasOneBrightness) {
  cv::Mat picture(1, 3, CV_8UC3);
  picture.at<cv::Vec3b>(0, 0) = {255, 0, 0};
  picture.at<cv::Vec3b>(0, 1) = {0, 255, 0};
  picture.at<cv::Vec3b>(0, 2) = {255, 255, 255};
  const cv::Mat result = changed(picture, {.gray = true});
  EXPECT_EQ(result.at<cv::Vec3b>(0, 0), (cv::Vec3b{76, 76, 76}));
  EXPECT_EQ(result.at<cv::Vec3b>(0, 1), (cv::Vec3b{150, 150, 150}));
  EXPECT_EQ(result.at<cv::Vec3b>(0, 2), (cv::Vec3b{255, 255, 255}));
}

// A picture of few brightnesses gets more of them; one of a single brightness
// does not.
TEST(PixelChanges, ClaheSpreadsBrightness) {
  cv::Mat picture(64, 64, CV_8UC3);
  for (int y = 0; y < 64; ++y) {
    for (int x = 0; x < 64; ++x) {
      picture.at<cv::Vec3b>(y, x) =
          cv::Vec3b::all(static_cast<uint8_t>(100 + (x + y) % 8));
    }
  }
  const auto spread = [](const cv::Mat& of) {
    double low = 0, high = 0;
    cv::minMaxLoc(of.reshape(1), &low, &high);
    return high - low;
  };
  EXPECT_GT(spread(changed(picture, {.clahe = 4})), 2 * spread(picture));
  // Smaller than its parts.
  EXPECT_EQ(changed(test_picture(5, 3, 1), {.clahe = 2}).size(),
            cv::Size(3, 5));
}

}  // namespace
}  // namespace headroom::augment
