#include "worker/data/codecs/image_writer.h"

#include <gtest/gtest.h>

#include <opencv2/core.hpp>

#include "parallel/base/check.h"
#include "worker/data/codecs/image.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;

TEST(PngFile, HoldsThePicture) {
  cv::Mat picture(7, 5, CV_8UC3);
  cv::randu(picture, 0, 256);
  const fs::path file = fs::path(::testing::TempDir()) / "chart_file.png";
  write_png(picture, file);
  const ImageResult read = decode_image(file, {});
  ASSERT_TRUE(read.ok()) << read.reason;
  EXPECT_EQ(cv::norm(read.pixels, picture, cv::NORM_INF), 0);
  fs::remove(file);
}

TEST(PngFile, NamesTheFileThatCannotBeWritten) {
  const cv::Mat picture(7, 5, CV_8UC3, cv::Scalar(1, 2, 3));
  try {
    write_png(picture, "/nowhere/x.png");
    FAIL() << "written";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/x.png"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace headroom::codecs
