// Pictures that together have all colours.
#pragma once

#include <cstdint>
#include <opencv2/core.hpp>

namespace headroom {

// An RGB picture of 256 x 256 pixels: green is the row's number, blue the
// column's.
inline cv::Mat all_colours_with(int red) {
  cv::Mat picture(256, 256, CV_8UC3);
  for (int green = 0; green < 256; ++green) {
    for (int blue = 0; blue < 256; ++blue) {
      picture.at<cv::Vec3b>(green, blue) =
          cv::Vec3b(static_cast<uint8_t>(red), static_cast<uint8_t>(green),
                    static_cast<uint8_t>(blue));
    }
  }
  return picture;
}

}  // namespace headroom
