#include "configs/multi_scale.h"

#include <gtest/gtest.h>

#include <vector>

namespace headroom::configs {
namespace {

std::vector<int64_t> sides(int64_t side, int64_t stride) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < num_input_sizes({side, side}, stride); ++i) {
    const InputSize size = input_size({side, side}, stride, i);
    EXPECT_EQ(size.height, size.width);
    all.push_back(size.height);
  }
  return all;
}

TEST(MultiScale, EveryMultipleOfTheStrideFromHalfToOneAndAHalf) {
  EXPECT_EQ(sides(128, 32), (std::vector<int64_t>{64, 96, 128, 160, 192}));
  // 0.5 and 1.5 times 96 are 48 and 144.
  EXPECT_EQ(sides(96, 32), (std::vector<int64_t>{64, 96, 128}));
  EXPECT_EQ(sides(64, 32), (std::vector<int64_t>{64, 96}));  // 32 is too small
  EXPECT_EQ(sides(128, 64), (std::vector<int64_t>{128, 192}));
  EXPECT_EQ(sides(640, 32).front(), 320);
  EXPECT_EQ(sides(640, 32).back(), 960);
  EXPECT_EQ(sides(640, 32).size(), 21u);
}

TEST(MultiScale, TheOtherSideFollows) {
  const InputSize wide{384, 640};
  EXPECT_EQ(input_size(wide, 32, 0), (InputSize{192, 320}));
  // Rounded up from 211.2.
  EXPECT_EQ(input_size(wide, 32, 1), (InputSize{224, 352}));
  EXPECT_EQ(input_size(wide, 32, 10), wide);
  EXPECT_EQ(input_size(wide, 32, 20), (InputSize{576, 960}));
  EXPECT_EQ(input_size({64, 640}, 32, 0), (InputSize{64, 320}));
}

TEST(MultiScale, PlansCountOnTheLargest) {
  RunConfig config;
  config.image_height = 100;
  config.image_width = 200;
  EXPECT_EQ(largest_input_size(config, 32), (InputSize{128, 224}));
  config.multi_scale = true;
  EXPECT_EQ(largest_input_size(config, 32), (InputSize{192, 320}));
}

TEST(MultiScale, TimeCountsOnTheMean) {
  RunConfig config;
  config.image_height = config.image_width = 128;
  EXPECT_EQ(mean_pixels(config, 32), 128.0 * 128);
  config.multi_scale = true;
  EXPECT_EQ(mean_pixels(config, 32),
            (64 * 64 + 96 * 96 + 128 * 128 + 160 * 160 + 192 * 192) / 5.0);
}

}  // namespace
}  // namespace headroom::configs
