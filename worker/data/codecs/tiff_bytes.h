// A picture of bands as the bytes of a TIFF file, with all its bits: deflate,
// in strips. Three bands or more are called RGB and further ones, so that other
// programs show the first three.
//
// Threads: pure function. Errors: std::bad_alloc alone.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>

namespace headroom::codecs {

// REQUIRES: 8 or 16 bits, not empty.
std::string encode_tiff_bytes(const cv::Mat& pixels);

}  // namespace headroom::codecs
