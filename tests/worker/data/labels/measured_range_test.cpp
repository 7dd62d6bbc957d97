#include "worker/data/labels/measured_range.h"

#include <gtest/gtest.h>

#include <opencv2/core.hpp>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "tests/worker/data/refusal.h"
#include "worker/data/codecs/geo_tags.h"
#include "worker/data/codecs/image_writer.h"

namespace headroom::labels {
namespace {

configs::RangeWish percentiles(double low, double high, bool per_band) {
  return {.ranges = {},
          .low_percentile = low,
          .high_percentile = high,
          .per_band = per_band};
}

class MeasuredRange : public ::testing::Test {
 protected:
  MeasuredRange() {
    std::filesystem::create_directories(folder_.path() / "images");
  }
  // Writes an image of two bands: the first is the column's number, 0 to 999,
  // the second is ten times the first.
  void write(const std::string& name, int rows) {
    cv::Mat picture(rows, 1000, CV_32FC2);
    for (int y = 0; y < rows; ++y) {
      for (int x = 0; x < 1000; ++x) {
        picture.ptr<float>(y)[2 * x] = static_cast<float>(x);
        picture.ptr<float>(y)[2 * x + 1] = static_cast<float>(10 * x);
      }
    }
    write_tiff(folder_.path() / "images" / (name + ".tif"), picture,
               {.format = SAMPLEFORMAT_IEEEFP});
    folder_.write("labels/" + name + ".txt", "0 .5 .5 .2 .2\n");
  }
  ValueRanges measured(const configs::RangeWish& wish, int64_t threads = 3) {
    IndexOptions index;
    index.limits.bands = codecs::kAnyBands;
    index.limits.as_stored = true;
    return measured_range(indexed_images(folder_, "images", index), wish,
                          threads);
  }

  TemporaryFolder folder_;
};

TEST_F(MeasuredRange, ImagesOfMoreThan8BitsAreNamedWithTheirRange) {
  cv::Mat picture(40, 1000, CV_16UC1);
  for (int y = 0; y < picture.rows; ++y) {
    for (int x = 0; x < picture.cols; ++x) {
      picture.at<uint16_t>(y, x) = static_cast<uint16_t>(1000 + 2 * x);
    }
  }
  const std::filesystem::path deep = folder_.path() / "deep.tif";
  write_tiff(deep, picture, {});
  const std::filesystem::path plain =
      folder_.write("plain.bmp", encode_bmp(test_picture(8, 8, 1)));
  EXPECT_EQ(note_on_deep_images({plain}, "reduced to 8"), "");
  const std::string note = note_on_deep_images({plain, deep}, "reduced to 8");
  EXPECT_EQ(note.find("images such as " + deep.string() +
                      " have more than 8 bits and are reduced to 8; 98 % of "
                      "their values lie in range: [10"),
            0U)
      << note;
}

TEST_F(MeasuredRange, IsOfTheSpreadPixels) {
  for (int i = 0; i < 5; ++i) write(std::to_string(i), 30 + 50 * i);
  const ValueRanges bands = measured(percentiles(10, 90, true));
  ASSERT_EQ(bands.size(), 2u);
  EXPECT_NEAR(bands[0].low, 100, 20);
  EXPECT_NEAR(bands[0].high, 900, 20);
  EXPECT_NEAR(bands[1].low, 1000, 200);
  EXPECT_NEAR(bands[1].high, 9000, 200);
  const ValueRanges all = measured(percentiles(0, 75, false));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].low, 0);
  // Half of the second band's values, a quarter of all values, are above 5,000.
  EXPECT_NEAR(all[0].high, 5000, 200);
  EXPECT_EQ(measured(percentiles(10, 90, true), 1), bands);
}

TEST_F(MeasuredRange, ReadsAFewOfManyImages) {
  constexpr int kMany = 600;
  for (int i = 0; i < kMany; ++i) {
    cv::Mat dark(8, 8, CV_16U, cv::Scalar(i % 2 == 0 ? 100 : 5000));
    folder_.write("images/" + std::to_string(1000 + i) + ".png",
                  codecs::encode_png_bytes(dark));
  }
  folder_.write("labels/1000.txt", "0 .5 .5 .2 .2\n");
  EXPECT_EQ(measured(percentiles(1, 99, false)), (ValueRanges{{100, 5000}}));
}

// A map may have a border without data.
TEST_F(MeasuredRange, PixelsWithoutDataDoNotCount) {
  cv::Mat picture(40, 40, CV_16UC1, cv::Scalar(0));
  for (int y = 10; y < 30; ++y) {
    for (int x = 10; x < 30; ++x) {
      picture.ptr<uint16_t>(y)[x] = static_cast<uint16_t>(1000 + 20 * y + x);
    }
  }
  codecs::GeoTags tags;
  tags.no_data = "0";
  folder_.write("images/1.tif", codecs::encode_tiff_bytes(picture, &tags));
  folder_.write("labels/1.txt", "0 .5 .5 .2 .2\n");
  EXPECT_EQ(measured(percentiles(0, 100, false)), (ValueRanges{{1210, 1609}}));
}

TEST_F(MeasuredRange, OneValueIsRefused) {
  folder_.write("images/1.png", codecs::encode_png_bytes(
                                    cv::Mat(9, 9, CV_16U, cv::Scalar(700))));
  folder_.write("labels/1.txt", "0 .5 .5 .2 .2\n");
  const std::string text =
      refusal_of([&] { measured(percentiles(1, 99, false)); });
  EXPECT_TRUE(
      text.starts_with("[data] both percentiles that range asks for are "
                       "700.000000 in the training images"))
      << text;
}

}  // namespace
}  // namespace headroom::labels
