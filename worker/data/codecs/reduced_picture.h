// Makes a small picture for display of an image that is too large to be held in
// memory.
//
// A TIFF may contain smaller copies of itself, called overviews; cloud
// optimized GeoTIFFs do. The smallest overview that is large enough is read.
// Other files are read row by row. Memory is needed for the small picture and
// for a few rows, or for as many rows as the file compresses together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <opencv2/core/mat.hpp>
#include <string>

#include "worker/data/codecs/image.h"

namespace headroom::codecs {

struct ReducedPicture {
  cv::Mat pixels;      // 8-bit RGB, upright; empty if refused or stopped
  std::string reason;  // why the file was refused; empty if it was not
};

// The picture keeps its aspect ratio. Its longer side has `longest` pixels, or
// as many as the image's longer side if that has fewer. Each pixel is the mean
// of the pixels that it covers. While rows are left, `go_on` is called with the
// number of rows read so far and of all rows; if it returns false, reading
// stops. REQUIRES: longest > 0.
ReducedPicture reduced_picture(
    const std::filesystem::path& file, const ImageLimits& limits,
    int64_t longest, const std::function<bool(int64_t, int64_t)>& go_on);

}  // namespace headroom::codecs
