#include "worker/data/augment/pixel_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <opencv2/core.hpp>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"

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

// For every size of the window, the blurs equal the definitions of mean and
// median.
template <typename Level>
void expect_means_and_medians(const cv::Mat& picture) {
  const int bands = picture.channels();
  for (const int side : {3, 5, 7}) {
    cv::Mat mean = picture.clone(), median = picture.clone();
    const bool has_colours = picture.type() == CV_8UC3;
    change_pixels(mean, {.blur = side}, has_colours);
    change_pixels(median, {.median_blur = side}, has_colours);
    const int edge = side / 2;
    for (int y = edge; y < picture.rows - edge; ++y) {
      for (int i = edge * bands; i < (picture.cols - edge) * bands; ++i) {
        std::vector<int> around;
        for (int dy = -edge; dy <= edge; ++dy) {
          for (int dx = -edge; dx <= edge; ++dx) {
            around.push_back(picture.ptr<Level>(y + dy)[i + dx * bands]);
          }
        }
        const auto count = static_cast<int>(around.size());
        const int sum = std::accumulate(around.begin(), around.end(), 0);
        ASSERT_EQ(mean.ptr<Level>(y)[i], (2 * sum + count) / (2 * count));
        std::ranges::nth_element(around, around.begin() + count / 2);
        ASSERT_EQ(median.ptr<Level>(y)[i], around[count / 2]);
      }
    }
  }
}

TEST(PixelChanges, BlursAreRoundedMeansAndMedians) {
  expect_means_and_medians<uint8_t>(test_picture(20, 30, 1));
  cv::Mat deep = test_bands(17, 23, 2, 3);
  deep.convertTo(deep, CV_16U, 257, 31);
  expect_means_and_medians<uint16_t>(deep);
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

// CLAHE widens the range of brightness of a picture that has few levels.
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
  // This picture is smaller than the grid of parts that CLAHE uses.
  EXPECT_EQ(changed(test_picture(5, 3, 1), {.clahe = 2}).size(),
            cv::Size(3, 5));
}

}  // namespace
}  // namespace headroom::augment
