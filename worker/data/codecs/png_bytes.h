// A picture as the bytes of a PNG file, with all its bits.
//
// Threads: pure function. Errors: std::bad_alloc alone.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>

namespace headroom::codecs {

// REQUIRES: one or three channels (RGB) of 8 or 16 bits, not empty.
std::string encode_png_bytes(const cv::Mat& pixels);

}  // namespace headroom::codecs
