#include "worker/data/codecs/exif.h"

#include <gtest/gtest.h>

#include <opencv2/core.hpp>
#include <string>
#include <vector>

namespace headroom::codecs {
namespace {

int orientation_of(const std::string& bytes) {
  const std::vector<uint8_t> data(bytes.begin(), bytes.end());
  return exif_orientation(data);
}

std::string little_endian(char orientation) {
  using namespace std::string_literals;
  return "II*\0\x08\0\0\0\x01\0"s + "\x12\x01\x03\0\x01\0\0\0"s + orientation +
         "\0\0\0"s;
}

TEST(Exif, ReadsBothByteOrders) {
  using namespace std::string_literals;
  EXPECT_EQ(orientation_of(little_endian(6)), 6);
  EXPECT_EQ(orientation_of("Exif\0\0"s + little_endian(3)), 3);
  EXPECT_EQ(orientation_of("MM\0*\0\0\0\x08\0\x01"s +
                           "\x01\x12\0\x03\0\0\0\x01\0\x08\0\0"s),
            8);
}

TEST(Exif, NonsenseIsUpright) {
  using namespace std::string_literals;
  EXPECT_EQ(orientation_of(""), 1);
  EXPECT_EQ(orientation_of("II*"), 1);
  EXPECT_EQ(orientation_of(little_endian(0)), 1);
  EXPECT_EQ(orientation_of(little_endian(9)), 1);
  EXPECT_EQ(orientation_of("II*\0\xff\xff\xff\xff"s), 1);
  EXPECT_EQ(orientation_of("II*\0\x08\0\0\0\xff\xff"s), 1);
  const std::string whole = little_endian(6);
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(orientation_of(whole.substr(0, length)), 1) << length;
  }
}

// The picture 1 2 3 / 4 5 6 after each orientation.
TEST(Exif, TurnsPictures) {
  const cv::Mat stored = (cv::Mat_<uint8_t>(2, 3) << 1, 2, 3, 4, 5, 6);
  const std::vector<std::vector<int>> kUpright{
      {1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}, {6, 5, 4, 3, 2, 1},
      {4, 5, 6, 1, 2, 3}, {1, 4, 2, 5, 3, 6}, {4, 1, 5, 2, 6, 3},
      {6, 3, 5, 2, 4, 1}, {3, 6, 2, 5, 1, 4}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const cv::Mat turned = upright(stored.clone(), orientation);
    EXPECT_EQ(turned.rows, swaps_axes(orientation) ? 3 : 2);
    std::vector<int> values(turned.begin<uint8_t>(), turned.end<uint8_t>());
    EXPECT_EQ(values, kUpright[orientation - 1]) << orientation;
  }
}

}  // namespace
}  // namespace headroom::codecs
