// A picture as a PNG file.
//
// Errors: Error (exit 2) that names the file and why.
#pragma once

#include <filesystem>
#include <opencv2/core/mat.hpp>

namespace headroom::codecs {

// REQUIRES: CV_8UC3, RGB, continuous, not empty.
void write_png(const cv::Mat& pixels, const std::filesystem::path& file);

}  // namespace headroom::codecs
