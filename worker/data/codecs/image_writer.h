// Pictures as the bytes of image files.
//
// Errors: std::bad_alloc alone, where nothing else is said.
#pragma once

#include <filesystem>
#include <opencv2/core/mat.hpp>
#include <string>

namespace headroom::codecs {

struct GeoTags;

// The bytes of a PNG file, with all bits of the picture.
// REQUIRES: one or three channels (RGB) of 8 or 16 bits, not empty.
std::string encode_png_bytes(const cv::Mat& pixels);

// Writes a PNG file. Throws Error (exit 2) that names the file and the reason.
// REQUIRES: CV_8UC3, RGB, continuous, not empty.
void write_png(const cv::Mat& pixels, const std::filesystem::path& file);

// The bytes of a JPEG file. REQUIRES: CV_8UC3, RGB, not empty; quality 1..100.
std::string encode_jpeg(const cv::Mat& pixels, int quality);

// The bytes of a TIFF file of any number of bands, with all their bits, in
// deflated strips. Three bands or more are called RGB and further ones, so that
// other programs show the first three. `place`: where the pixels lie on a map;
// null: nowhere. REQUIRES: CV_8U, CV_16U, CV_16S or CV_32F, not empty.
std::string encode_tiff_bytes(const cv::Mat& pixels,
                              const GeoTags* place = nullptr);

}  // namespace headroom::codecs
