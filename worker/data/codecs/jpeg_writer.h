// An RGB picture as the bytes of a JPEG file.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>

namespace headroom::codecs {

// REQUIRES: CV_8UC3, not empty; quality 1..100.
std::string encode_jpeg(const cv::Mat& pixels, int quality);

}  // namespace headroom::codecs
