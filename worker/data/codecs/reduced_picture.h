// A picture, made small for people, of an image that is too large to be held.
//
// A TIFF may have smaller pictures of itself (overviews; cloud optimized
// GeoTIFFs have them): the smallest that is large enough is read. Other files
// are read row by row. Memory is that of the small picture and a few rows, or
// those that the file stores together.
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

// The picture keeps its shape, and its longer side is `longest` pixels, or that
// of the image if it has fewer. Each pixel is the mean of those that it covers.
// `go_on` is told how many rows of all have been read as long as some are left,
// and returns false to end it. REQUIRES: longest > 0.
ReducedPicture reduced_picture(
    const std::filesystem::path& file, const ImageLimits& limits,
    int64_t longest, const std::function<bool(int64_t, int64_t)>& go_on);

}  // namespace headroom::codecs
