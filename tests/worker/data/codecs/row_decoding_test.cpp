// If only some rows of an image are decoded, they equal those rows of the whole
// image, in every format and form. The requested rows do not decide whether a
// file is refused.
#include <gtest/gtest.h>

#include <opencv2/core.hpp>
#include <string>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "worker/data/codecs/image.h"
#include "worker/data/sampling/random.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;

constexpr int kHeight = 149;
constexpr int kWidth = 71;

class RowDecoding : public ::testing::Test {
 protected:
  static cv::Mat cut(const cv::Mat& whole, PixelRows rows) {
    rows = clamp_rows(rows, whole.rows);
    return rows_of(whole, rows);
  }

  PixelRows random_rows(int64_t height) {
    const int64_t begin = draws_.below(height + 1);
    return {begin, begin + draws_.below(height + 1 - begin)};
  }

  void expect_its_rows(const fs::path& file, const std::string& name) {
    const ImageResult whole = decode_image(file);
    ASSERT_TRUE(whole.ok()) << name << ": " << whole.reason;
    const int64_t height = whole.pixels.rows;
    std::vector<PixelRows> ranges{{0, 0},
                                  {0, 1},
                                  {height - 1, height},
                                  {height, height},
                                  {0, height},
                                  {height - 2, height + 100},
                                  {height + 5, height + 9}};
    for (int i = 0; i < 25; ++i) ranges.push_back(random_rows(height));
    for (const PixelRows rows : ranges) {
      const ImageResult some = decode_rows(file, rows);
      ASSERT_TRUE(some.ok()) << name << ": " << some.reason;
      EXPECT_EQ(some.size, whole.size);
      if (clamp_rows(rows, height).size() == 0) {
        EXPECT_TRUE(some.pixels.empty());
        continue;
      }
      EXPECT_TRUE(some.pixels.isContinuous());
      EXPECT_TRUE(same_pixels(some.pixels, cut(whole.pixels, rows)))
          << name << " rows " << rows.begin << " to " << rows.end << " of "
          << height;
    }
  }

  TemporaryFolder folder_;
  sampling::RandomStream draws_{11, 0, 0,
                                sampling::RandomPurpose::kSyntheticImage};
  const cv::Mat picture_ = test_picture(kHeight, kWidth, 5);
};

TEST_F(RowDecoding, EveryFormat) {
  for (const auto& [name, bytes] : encodings(picture_)) {
    expect_its_rows(folder_.write("image", bytes), name);
  }
}

// To compute the chroma at the edges of a range of rows, the decoder needs rows
// outside of the range.
TEST_F(RowDecoding, JpegInItsForms) {
  for (const auto& [name, form] : jpeg_forms()) {
    expect_its_rows(folder_.write("image", encode_jpeg(picture_, form)), name);
  }
}

TEST_F(RowDecoding, WhateverTheOrientation) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string name = "orientation " + std::to_string(orientation);
    expect_its_rows(
        folder_.write("image",
                      encode_jpeg(picture_, {.orientation = orientation})),
        "JPEG " + name);
    const PngForm png{.has_alpha = orientation % 2 == 0,
                      .orientation = orientation};
    const fs::path file = folder_.write("image", encode_png(picture_, png));
    EXPECT_EQ(read_image_size(file).size.height,
              orientation >= 5 ? kWidth : kHeight);
    expect_its_rows(file, "PNG " + name);
    const TiffForm tiff{.orientation = static_cast<uint16_t>(orientation)};
    expect_its_rows(folder_.write("image", encode_tiff(picture_, tiff)),
                    "TIFF " + name);
  }
}

TEST_F(RowDecoding, BmpFromTheTopDown) {
  std::string bytes = encode_bmp(picture_);
  const auto height = static_cast<uint32_t>(-kHeight);
  for (int i = 0; i < 4; ++i) {
    bytes[22 + i] = static_cast<char>(height >> (8 * i) & 255);
  }
  expect_its_rows(folder_.write("image", bytes), "BMP from the top down");
}

// Damage anywhere refuses the file, whatever rows are requested: ranks that
// share an image must agree on whether the image counts.
TEST_F(RowDecoding, TheVerdictIsThatOfTheWholeFile) {
  int damaged = 0;
  for (const auto& [name, whole] : encodings(picture_)) {
    for (int round = 0; round < 40; ++round) {
      std::string bytes = whole;
      if (round % 2 == 0) {
        bytes.resize(static_cast<size_t>(
            draws_.below(static_cast<int64_t>(whole.size()))));
      } else {
        const int64_t changes = 1 + draws_.below(4);
        for (int64_t i = 0; i < changes; ++i) {
          bytes[static_cast<size_t>(
              draws_.below(static_cast<int64_t>(bytes.size())))] =
              static_cast<char>(draws_.below(256));
        }
      }
      const fs::path file = folder_.write("image", bytes);
      const ImageResult verdict = decode_image(file);
      damaged += verdict.ok() ? 0 : 1;
      const int64_t height = verdict.ok() ? verdict.pixels.rows : kHeight;
      for (const PixelRows rows :
           {PixelRows{0, 0}, PixelRows{0, 20}, PixelRows{height - 20, height},
            random_rows(height)}) {
        const ImageResult some = decode_rows(file, rows);
        EXPECT_EQ(some.reason, verdict.reason) << name << " round " << round;
        if (!some.ok() || !verdict.ok()) continue;
        if (clamp_rows(rows, height).size() == 0) continue;
        EXPECT_TRUE(same_pixels(some.pixels, cut(verdict.pixels, rows)))
            << name << " round " << round;
      }
    }
  }
  EXPECT_GT(damaged, 200);
}

}  // namespace
}  // namespace headroom::codecs
