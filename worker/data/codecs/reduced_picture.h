// A picture, made small for people, of an image that is too large to be held.
//
// Of a TIFF with smaller pictures of itself (overviews; cloud optimized
// GeoTIFFs have them) the smallest that is large enough is read, of others
// every row. Memory is that of the small picture and a few rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <opencv2/core/mat.hpp>
#include <string>

#include "worker/data/codecs/image.h"

namespace headroom::codecs {

struct ReducedPicture {
  cv::Mat pixels;      // RGB of 8 bits, upright; empty if refused or ended
  std::string reason;  // why refused; empty if not
};

// No side is longer than `longest`; a pixel is the mean of a square of the
// file's as far as they fill one. `go_on` is told how many rows of all have
// been read, and returns false to end it. REQUIRES: longest > 0.
ReducedPicture reduced_picture(
    const std::filesystem::path& file, const ImageLimits& limits,
    int64_t longest, const std::function<bool(int64_t, int64_t)>& go_on);

}  // namespace headroom::codecs
