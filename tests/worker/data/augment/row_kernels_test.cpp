// Row kernels: every instruction set gives the same bytes as plain arithmetic.
#include "worker/data/augment/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <opencv2/imgproc.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/colours.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/sampling/random.h"

namespace headroom::augment {
namespace {

constexpr uint8_t kGray = 114;

class RowKernelsTest : public ::testing::TestWithParam<RowInstructionSet> {
 protected:
  void SetUp() override {
    kernels_ = row_kernels_of(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "this processor lacks it";
  }

  std::vector<uint8_t> jittered(std::vector<uint8_t> pixels,
                                const kernels::HsvFactors& factors) const {
    const int count = static_cast<int>(pixels.size() / 3);
    std::vector<int32_t> colours(static_cast<size_t>(count) + kMaxLanes);
    kernels_->jitter(pixels.data(), count, factors, colours.data());
    return pixels;
  }

  const RowKernels* kernels_ = nullptr;
};

TEST_P(RowKernelsTest, ColoursAreThoseOfTheBaseline) {
  sampling::RandomStream draws(1, 0, 0,
                               sampling::RandomPurpose::kSyntheticImage);
  const RowKernels& baseline = *row_kernels_of(RowInstructionSet::kBaseline);
  for (int count = 0; count < 150; ++count) {
    std::vector<uint8_t> pixels(3 * static_cast<size_t>(count));
    for (uint8_t& byte : pixels) byte = static_cast<uint8_t>(draws.below(256));
    const kernels::HsvFactors factors{static_cast<float>(draws.uniform(0, 3)),
                                      static_cast<float>(draws.uniform(0, 2)),
                                      static_cast<float>(draws.uniform(0, 2))};
    std::vector<uint8_t> expected = pixels;
    std::vector<int32_t> colours(static_cast<size_t>(count) + kMaxLanes);
    baseline.jitter(expected.data(), count, factors, colours.data());
    EXPECT_EQ(jittered(pixels, factors), expected) << count;
  }
}

// The row kernels give the same bytes as the code of a device, which changes
// one pixel at a time.
TEST_P(RowKernelsTest, ColoursAreThoseOfOnePixelAtATime) {
  sampling::RandomStream draws(3, 0, 0,
                               sampling::RandomPurpose::kSyntheticImage);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint8_t> pixels(3 * 1000);
    for (uint8_t& byte : pixels) byte = static_cast<uint8_t>(draws.below(256));
    const kernels::HsvFactors factors{static_cast<float>(draws.uniform(0, 3)),
                                      static_cast<float>(draws.uniform(0, 2)),
                                      static_cast<float>(draws.uniform(0, 2))};
    std::vector<uint8_t> expected;
    for (size_t i = 0; i < pixels.size(); i += 3) {
      const auto colour = kernels::jittered_colour<kernels::OneLane>(
          {pixels[i], pixels[i + 1], pixels[i + 2]}, factors);
      for (const int level : {colour.first, colour.second, colour.third}) {
        expected.push_back(static_cast<uint8_t>(level));
      }
    }
    EXPECT_EQ(jittered(pixels, factors), expected);
  }
}

// Converts all colours to HSV and back. OpenCV divides by tables of rounded
// reciprocals, and its conversion to RGB depends on whether the processor fuses
// products and sums. So a few values in a hundred differ, by at most the effect
// of one level of the hue.
TEST_P(RowKernelsTest, ColoursThereAndBackAreNearOpenCvs) {
  int64_t different = 0, furthest = 0;
  for (int red = 0; red < 256; ++red) {
    cv::Mat picture = all_colours_with(red);
    const std::vector<uint8_t> ours =
        jittered({picture.data, picture.data + picture.total() * 3}, {});
    cv::cvtColor(picture, picture, cv::COLOR_RGB2HSV);
    cv::cvtColor(picture, picture, cv::COLOR_HSV2RGB);
    for (size_t i = 0; i < ours.size(); ++i) {
      const int64_t distance = std::abs(int{ours[i]} - int{picture.data[i]});
      different += distance != 0;
      furthest = std::max(furthest, distance);
    }
  }
  EXPECT_LE(furthest, 9);  // 255 / 30, at full saturation
  EXPECT_LT(different, 3 * 256 * 256 * 256 / 40);
}

TEST_P(RowKernelsTest, EachFactorActsOnItsOwn) {
  using Pixel = std::vector<uint8_t>;
  EXPECT_EQ(jittered({200, 100, 50}, {1, 1, 0.5F}), (Pixel{100, 50, 25}));
  EXPECT_EQ(jittered({200, 100, 50}, {1, 0, 1}), (Pixel{200, 200, 200}));
  EXPECT_EQ(jittered({0, 255, 0}, {2, 1, 1}), (Pixel{0, 0, 255}));
  EXPECT_EQ(jittered({0, 255, 0}, {3, 1, 1}), (Pixel{255, 0, 0}));
  EXPECT_EQ(jittered({0, 0, 0}, {2, 2, 2}), (Pixel{0, 0, 0}));
}

// Fetches from two tiles and the gray around them equal the formula applied to
// one picture that holds both tiles.
TEST_P(RowKernelsTest, FetchesBlendTheVisiblePartsOfTheTiles) {
  sampling::RandomStream draws(2, 0, 0,
                               sampling::RandomPurpose::kSyntheticImage);
  for (int round = 0; round < 300; ++round) {
    const int width = static_cast<int>(1 + draws.below(40));
    const int height = static_cast<int>(1 + draws.below(30));
    const cv::Mat first = test_picture(height, width, round);
    const cv::Mat second = test_picture(height + 3, width + 2, round + 1);
    cv::Mat canvas(100, 120, CV_8UC3, cv::Scalar::all(kGray));
    std::vector<TileView> tiles;
    const auto put = [&](const cv::Mat& pixels, cv::Point origin,
                         cv::Rect seen) {
      seen &= cv::Rect(0, 0, canvas.cols, canvas.rows);
      pixels(seen - origin).copyTo(canvas(seen));
      tiles.push_back({pixels.ptr(), static_cast<ptrdiff_t>(pixels.step),
                       origin.x, origin.y, seen.x, seen.x + seen.width, seen.y,
                       seen.y + seen.height});
    };
    const int cut = static_cast<int>(draws.below(width));
    put(first, {10, 8}, {10 + cut, 8, width - cut, height});
    put(second, {10 + width, 20}, {10 + width, 20, width + 2, height + 3});
    const int count = static_cast<int>(1 + draws.below(90));
    std::vector<int> xs, ys;
    for (int i = 0; i < count; ++i) {
      xs.push_back(static_cast<int>(draws.below(34 * (2 * width + 30))) - 100);
      ys.push_back(static_cast<int>(draws.below(34 * (height + 40))) - 100);
    }
    std::vector<int> kinds(static_cast<size_t>(count));
    std::vector<uint8_t> row(3 * static_cast<size_t>(count) + 1);
    kernels_->fetch(xs.data(), ys.data(), count, tiles.data(),
                    static_cast<int>(tiles.size()), kGray, kinds.data(),
                    row.data());
    const auto at = [&](int x, int y, int channel) -> int {
      const bool on = x >= 0 && x < canvas.cols && y >= 0 && y < canvas.rows;
      return on ? canvas.at<cv::Vec3b>(y, x)[channel] : kGray;
    };
    for (int i = 0; i < count; ++i) {
      const int x = xs[i] >> 5, y = ys[i] >> 5;
      const int right = xs[i] & 31, down = ys[i] & 31;
      for (int channel = 0; channel < 3; ++channel) {
        const int sum = at(x, y, channel) * (32 - right) * (32 - down) +
                        at(x + 1, y, channel) * right * (32 - down) +
                        at(x, y + 1, channel) * (32 - right) * down +
                        at(x + 1, y + 1, channel) * right * down;
        ASSERT_EQ(int{row[3 * i + channel]}, (sum + 512) >> 10)
            << "round " << round << " place " << xs[i] << ", " << ys[i];
      }
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<RowInstructionSet>& info) {
  const char* const names[] = {"baseline", "avx2", "avx512"};
  return names[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, RowKernelsTest,
                         ::testing::Values(RowInstructionSet::kBaseline,
                                           RowInstructionSet::kAvx2,
                                           RowInstructionSet::kAvx512),
                         name_of);

}  // namespace
}  // namespace headroom::augment
