// Encodes pictures as the bytes of image files.
//
// Throws only std::bad_alloc unless a comment says otherwise.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>

namespace headroom::codecs {

struct GeoTags;

// The bytes of a PNG file. 16-bit samples keep all their bits.
std::string encode_png_bytes(const cv::Mat& pixels);

// The bytes of a JPEG file. REQUIRES: CV_8UC3, RGB, not empty; quality 1..100.
std::string encode_jpeg(const cv::Mat& pixels, int quality);

// The bytes of a TIFF file with any number of bands, in deflate-compressed
// strips. Samples keep all their bits. A picture with three or more bands is
// marked RGB with extra samples, so that other programs show the first three.
// `place` is the position on a map, nullptr if there is none. REQUIRES: CV_8U,
// CV_16U, CV_16S or CV_32F, not empty.
std::string encode_tiff_bytes(const cv::Mat& pixels,
                              const GeoTags* place = nullptr);

}  // namespace headroom::codecs
