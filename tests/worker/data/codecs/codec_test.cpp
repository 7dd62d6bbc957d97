// Files of each format are made here. Their pixels are read back, and damage is
// noticed.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <opencv2/core.hpp>
#include <stdexcept>
#include <string>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/image_writer.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;

class Codecs : public ::testing::Test {
 protected:
  cv::Mat decoded(const std::string& bytes) {
    const fs::path file = folder_.write("image", bytes);
    const ImageResult result = decode_image(file);
    if (!result.ok()) throw std::runtime_error(result.reason);
    const ImageSizeResult size = inspect_image(file);
    EXPECT_EQ(size.reason, "");
    EXPECT_EQ(size.size, (ImageSize{result.pixels.rows, result.pixels.cols}));
    return result.pixels;
  }
  std::string reason(const std::string& bytes) {
    return decode_image(folder_.write("image", bytes)).reason;
  }

  TemporaryFolder folder_;
  const cv::Mat picture_ = test_picture(37, 45, 5);
};

TEST_F(Codecs, LosslessFormatsKeepEveryPixel) {
  EXPECT_TRUE(same_pixels(decoded(encode_bmp(picture_)), picture_));
  EXPECT_TRUE(same_pixels(decoded(encode_png(picture_)), picture_));
  EXPECT_TRUE(same_pixels(decoded(encode_webp(picture_)), picture_));
}

TEST_F(Codecs, JpegIsCloseToItsSource) {
  const cv::Mat smooth(64, 80, CV_8UC3, cv::Scalar(200, 90, 30));
  const cv::Mat pixels = decoded(encode_jpeg(smooth, 95));
  EXPECT_LE(cv::norm(pixels, smooth, cv::NORM_INF), 3);
}

TEST_F(Codecs, TiffInItsForms) {
  for (const uint16_t compression :
       {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE}) {
    for (const bool tiled : {false, true}) {
      for (const bool deep : {false, true}) {
        for (const bool big : {false, true}) {
          const TiffForm form{
              .compression = compression, .tiled = tiled, .big = big};
          const cv::Mat pixels = deep ? times_257(picture_) : picture_;
          EXPECT_TRUE(same_pixels(decoded(encode_tiff(pixels, form)), picture_))
              << compression << " tiled " << tiled << " deep " << deep
              << " big " << big;
        }
      }
    }
  }
}

TEST_F(Codecs, TiffOrientationIsAppliedOnce) {
  for (uint16_t orientation = 1; orientation <= 8; ++orientation) {
    for (const bool tiled : {false, true}) {
      const cv::Mat pixels = decoded(
          encode_tiff(picture_, {.orientation = orientation, .tiled = tiled}));
      EXPECT_EQ(pixels.rows, orientation >= 5 ? 45 : 37);
      // The expected position of the stored picture's first pixel.
      const bool right = orientation == 2 || orientation == 3 ||
                         orientation == 6 || orientation == 7;
      const bool bottom = orientation == 3 || orientation == 4 ||
                          orientation == 7 || orientation == 8;
      EXPECT_EQ(pixels.at<cv::Vec3b>(bottom ? pixels.rows - 1 : 0,
                                     right ? pixels.cols - 1 : 0),
                picture_.at<cv::Vec3b>(0, 0))
          << orientation << " tiled " << tiled;
    }
  }
}

TEST_F(Codecs, BmpWithPaletteMasksAndTopDownRows) {
  // 3 x 2 pixels of 4 bits: 0 1 2 / 2 1 0 (rows bottom up).
  std::string bytes = encode_bmp(cv::Mat(1, 1, CV_8UC3, cv::Scalar(0, 0, 0)));
  bytes.resize(54);
  bytes[10] = 54 + 12;  // pixels follow a palette of three
  bytes[18] = 3;
  bytes[22] = 2;
  bytes[28] = 4;
  bytes[46] = 3;
  bytes += std::string("\x0a\x0b\x0c\0\x14\x15\x16\0\x1e\x1f\x20\0", 12);
  const std::string rows("\x01\x20\0\0\x21\x00\0\0", 8);
  const cv::Mat palette = decoded(bytes + rows);
  EXPECT_EQ(palette.at<cv::Vec3b>(1, 0), cv::Vec3b(12, 11, 10));
  EXPECT_EQ(palette.at<cv::Vec3b>(1, 1), cv::Vec3b(22, 21, 20));
  EXPECT_EQ(palette.at<cv::Vec3b>(0, 0), cv::Vec3b(32, 31, 30));

  std::string top_down = bytes;
  top_down[22] = -2;
  top_down[23] = top_down[24] = top_down[25] = -1;
  EXPECT_EQ(decoded(top_down + rows).at<cv::Vec3b>(0, 0),
            cv::Vec3b(12, 11, 10));

  // 16 bits with 5 for red, 6 for green, 5 for blue.
  std::string deep = bytes.substr(0, 54);
  deep[10] = 66;
  deep[18] = 2;
  deep[22] = 1;
  deep[28] = 16;
  deep[30] = 3;
  deep += std::string("\0\xf8\0\0\xe0\x07\0\0\x1f\0\0\0", 12);
  deep += std::string("\0\xf8\x1f\0", 4);  // pure red, pure blue
  const cv::Mat masked = decoded(deep);
  EXPECT_EQ(masked.at<cv::Vec3b>(0, 0), cv::Vec3b(255, 0, 0));
  EXPECT_EQ(masked.at<cv::Vec3b>(0, 1), cv::Vec3b(0, 0, 255));
}

TEST_F(Codecs, BmpRefusals) {
  std::string bytes = encode_bmp(picture_);
  bytes[28] = 7;
  EXPECT_NE(reason(bytes).find("7 bits per pixel"), std::string::npos);
  bytes[28] = 24;
  bytes[30] = 1;
  EXPECT_NE(reason(bytes).find("compressed BMP"), std::string::npos);
  bytes[30] = 0;
  bytes[18] = bytes[19] = 0;
  EXPECT_NE(reason(bytes).find("without pixels"), std::string::npos);
}

// A truncated file must never pass, at any length.
TEST_F(Codecs, TruncationIsAlwaysNoticed) {
  for (const auto& [name, whole] : encodings(picture_)) {
    ASSERT_EQ(reason(whole), "");
    const size_t step = std::max<size_t>(1, whole.size() / 60);
    for (size_t length = 0; length < whole.size(); length += step) {
      EXPECT_NE(reason(whole.substr(0, length)), "")
          << name << ": " << length << " of " << whole.size();
    }
    EXPECT_NE(reason(whole.substr(0, whole.size() - 1)), "") << name;
  }
}

TEST_F(Codecs, PathsThatAreNoRegularFileAreRefused) {
  EXPECT_NE(decode_image(folder_.path() / "missing").reason, "");
  EXPECT_EQ(decode_image(folder_.path()).reason, "not a regular file");
  const fs::path pipe = folder_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(decode_image(pipe).reason, "not a regular file");
  EXPECT_EQ(decode_image("/dev/zero").reason, "not a regular file");
}

// Each scan costs a pass over all pixels, even if the scan has only a few
// bytes.
TEST_F(Codecs, ManyScansAreForSmallPicturesOnly) {
  JpegForm form;
  form.scans = 60;
  const cv::Mat small(200, 200, CV_8UC3, cv::Scalar(90, 120, 40));
  EXPECT_EQ(reason(encode_jpeg(small, form)), "");
  const cv::Mat large(4000, 4000, CV_8UC3, cv::Scalar(90, 120, 40));
  EXPECT_EQ(reason(encode_jpeg(large, form)),
            "damaged JPEG: more than 20 scans");
  form.scans = 18;  // the most that ordinary encoders write
  EXPECT_EQ(reason(encode_jpeg(large, form)), "");
}

}  // namespace
}  // namespace headroom::codecs
