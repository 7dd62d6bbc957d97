// The random draws of a training sample have the specified distribution: each
// is uniform over its range, and independent of the others of the sample, of
// the next sample, and of the same sample in the next epoch.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/worker/data/made_images.h"
#include "worker/data/augment/augment.h"

namespace headroom::augment {
namespace {

constexpr int kSide = 64;
constexpr int64_t kImages = 96;
constexpr int64_t kEpochs = 128;
constexpr int kBins = 16;
constexpr double kFlip = 0.5;

// Draws by name, scaled from their ranges to [0, 1).
using Draws = std::map<std::string, double>;

struct DrawnSample {
  Draws draws;
  bool upside_down = false, mirrored = false;
  std::array<int, 4> images{};  // one for each quarter of the mosaic
};

DrawnSample drawn_sample(int64_t epoch, int64_t sample) {
  configs::Hyperparameters hyp;
  hyp.flipud = kFlip;
  hyp.fliplr = kFlip;
  MadeImages images([](int64_t number) {
    LoadedImage image;
    image.source = {kSide, kSide};
    image.pixels = cv::Mat(kSide, kSide, CV_8UC3, cv::Scalar::all(number));
    return image;
  });
  const SampleRecipe recipe =
      plan_mosaic_sample({0, epoch, sample}, kImages, kSide, kSide, {0, kSide},
                         hyp, images)
          .recipe;
  const Warp& warp = recipe.picture.warp;
  const auto place = [](double value, double low, double high) {
    return (value - low) / (high - low);
  };
  // The corner of the fourth image is the mosaic's centre. The middle of the
  // canvas is at (kSide, kSide).
  const cv::Point centre = recipe.picture.tiles.at(3).origin;
  const auto shift = [&](int axis) {
    return warp.matrix(axis, 2) / kSide + warp.scale - 0.5;
  };
  DrawnSample result;
  result.draws = {
      {"centre x", place(centre.x, kSide / 2, kSide * 3 / 2)},
      {"centre y", place(centre.y, kSide / 2, kSide * 3 / 2)},
      {"scale", place(warp.scale, 0.5, 1.5)},
      {"translation x", place(shift(0), -0.1, 0.1)},
      {"translation y", place(shift(1), -0.1, 0.1)},
      {"hue", place(recipe.gains.hue, 0.985, 1.015)},
      {"saturation", place(recipe.gains.saturation, 0.3, 1.7)},
      {"value", place(recipe.gains.value, 0.6, 1.4)},
  };
  result.upside_down = recipe.upside_down;
  result.mirrored = recipe.mirrored;
  for (size_t i = 0; i < result.images.size(); ++i) {
    result.images[i] = recipe.picture.tiles[i].pixels.at<cv::Vec3b>(0, 0)[0];
  }
  return result;
}

class DrawDistribution : public testing::Test {
 protected:
  static constexpr size_t kCount = kImages * kEpochs;

  static void SetUpTestSuite() {
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (int64_t sample = 0; sample < kImages; ++sample) {
        samples().push_back(drawn_sample(epoch, sample));
      }
    }
  }
  static void TearDownTestSuite() { samples() = {}; }
  // Ordered by epoch, then by sample number.
  static std::vector<DrawnSample>& samples() {
    static std::vector<DrawnSample> all;
    return all;
  }
  // The correlation of draw `a` of a sample with draw `b` of the sample that
  // comes `apart` samples later.
  static double correlation(const std::string& a, const std::string& b,
                            size_t apart) {
    double sum = 0;
    for (size_t i = 0; i + apart < kCount; ++i) {
      sum += (samples()[i].draws.at(a) - 0.5) *
             (samples()[i + apart].draws.at(b) - 0.5);
    }
    return sum / static_cast<double>(kCount - apart) * 12;
  }
  // Four and a half standard deviations of the mean of kCount values.
  static double bound(double deviation = 1) {
    return 4.5 * deviation / std::sqrt(static_cast<double>(kCount));
  }
};

TEST_F(DrawDistribution, EveryDrawIsUniformOverItsRange) {
  for (const auto& [name, unused] : samples().front().draws) {
    std::array<double, kBins> counts{};
    for (const DrawnSample& sample : samples()) {
      const double place = sample.draws.at(name);
      ASSERT_GE(place, -1e-9) << name;
      ASSERT_LT(place, 1 + 1e-9) << name;
      ++counts.at(static_cast<size_t>(
          std::clamp(static_cast<int>(place * kBins), 0, kBins - 1)));
    }
    const double expected = static_cast<double>(kCount) / kBins;
    double chi_square = 0;
    for (const double count : counts) {
      chi_square += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LT(chi_square, 44.3) << name;  // 15 degrees of freedom, p = 1e-4
  }
}

TEST_F(DrawDistribution, DrawsAreIndependent) {
  for (const auto& [a, unused_a] : samples().front().draws) {
    for (const auto& [b, unused_b] : samples().front().draws) {
      if (a < b) {
        EXPECT_NEAR(correlation(a, b, 0), 0, bound()) << a << ", " << b;
      }
      EXPECT_NEAR(correlation(a, b, 1), 0, bound())
          << a << ", " << b << " of the next sample";
      EXPECT_NEAR(correlation(a, b, kImages), 0, bound())
          << a << ", " << b << " of the next epoch";
    }
  }
}

TEST_F(DrawDistribution, FlipsHaveTheirProbabilitiesAndAreIndependent) {
  double mirrored = 0, upside_down = 0, both = 0;
  for (const DrawnSample& sample : samples()) {
    mirrored += sample.mirrored;
    upside_down += sample.upside_down;
    both += sample.mirrored && sample.upside_down;
  }
  const auto count = static_cast<double>(kCount);
  EXPECT_NEAR(mirrored / count, kFlip, bound(0.5));
  EXPECT_NEAR(upside_down / count, kFlip, bound(0.5));
  EXPECT_NEAR(both / count, kFlip * kFlip, bound(0.44));
}

TEST_F(DrawDistribution, PartnersAreAnyImageAndEveryQuarterIsAlike) {
  std::vector<double> shown(kImages, 0);
  std::array<double, 4> own{};
  for (size_t i = 0; i < kCount; ++i) {
    const auto number = static_cast<int>(i % kImages);
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      const int image = samples()[i].images.at(quarter);
      ++shown.at(static_cast<size_t>(image));
      own.at(quarter) += image == number;
    }
  }
  // Each mosaic shows the sample's own image once, and three others drawn from
  // kImages with replacement.
  const double times = 4.0 * kEpochs, deviation = std::sqrt(3.0 * kEpochs);
  for (const double count : shown) EXPECT_NEAR(count, times, 4.5 * deviation);
  const double expected = (1 + 3.0 / kImages) / 4;
  for (const double count : own) {
    EXPECT_NEAR(count / static_cast<double>(kCount), expected, bound(0.44));
  }
}

}  // namespace
}  // namespace headroom::augment
