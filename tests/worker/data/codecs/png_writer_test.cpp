#include "worker/data/codecs/image_writer.h"

#include <gtest/gtest.h>

#include <opencv2/core.hpp>

#include "tests/support/temporary_folder.h"
#include "worker/data/codecs/image.h"

namespace headroom::codecs {
namespace {

TEST(PngFile, HoldsThePicture) {
  cv::Mat picture(7, 5, CV_8UC3);
  cv::randu(picture, 0, 256);
  const testing::TemporaryFolder folder;
  const ImageResult read =
      decode_image(folder.write("a.png", encode_png_bytes(picture)), {});
  ASSERT_TRUE(read.ok()) << read.reason;
  EXPECT_EQ(cv::norm(read.pixels, picture, cv::NORM_INF), 0);
}

}  // namespace
}  // namespace headroom::codecs
