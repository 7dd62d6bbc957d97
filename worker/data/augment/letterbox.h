// Letterbox: an image brought to the network's size with its shape kept, the
// rest filled with gray 114, half of it on each side (YOLOv5's rounding).
//
// Before it every image is resized once as it is loaded, so that its longer
// side fits the network: fit_size and resize_loaded.
#pragma once

#include <cstdint>
#include <opencv2/core/mat.hpp>
#include <opencv2/core/types.hpp>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/kernels/packed_sample.h"

namespace headroom::augment {

// The largest size of the image's shape within height x width, both sides
// rounded up (but not beyond it).
codecs::ImageSize fit_size(codecs::ImageSize source, int64_t height,
                           int64_t width);

// Bilinear as in training and where it enlarges, area otherwise; `pixels`
// itself where nothing changes.
cv::Mat resize_loaded(const cv::Mat& pixels, codecs::ImageSize size,
                      bool bilinear);

struct LetterboxOptions {
  bool enlarge = true;    // may pixels be made larger?
  bool smallest = false;  // pad only to the next multiple of the stride
  bool stretch = false;   // fill the target, shape not kept
  int64_t stride = 32;
};

struct Letterbox {
  int64_t height = 0, width = 0;  // the result's
  int64_t resized_height = 0, resized_width = 0;
  int64_t top = 0, left = 0;        // first row and column of the picture
  double ratio_x = 1, ratio_y = 1;  // ratios before rounding
  double pad_x = 0, pad_y = 0;      // half of the padding; boxes move by it
};

Letterbox letterbox_geometry(codecs::ImageSize source, int64_t height,
                             int64_t width, const LetterboxOptions& options);

// A picture of that size, its first pixel at (left, top) of a larger one that
// is gray around it. Only its rows `held` are in memory.
struct PlacedPicture {
  codecs::ImageSize size;
  int left = 0, top = 0;
  codecs::PixelRows held;

  // Those of the larger picture's rows `rows` that this one covers, counted
  // from its own first row.
  codecs::PixelRows own_rows(codecs::PixelRows rows) const {
    return codecs::clamp_rows({rows.begin - top, rows.end - top}, size.height);
  }
};

// Pixels on a larger picture: the first of them at `origin`, of which what is
// in `seen` is not covered by others. Both in pixels of the larger one.
struct PlacedTile {
  cv::Mat pixels;
  cv::Point origin;
  cv::Rect seen;
};

// All rows held.
PlacedPicture placed_picture(const Letterbox& geometry);

// Resizes to placed_picture's size; `pixels` itself if it has that.
cv::Mat resize_to_letterbox(const cv::Mat& pixels, const Letterbox& geometry);

// Its rows `picture.held`, on the larger one.
PlacedTile placed_tile(const cv::Mat& pixels, const PlacedPicture& picture);

// Rows `rows`, `width` pixels wide, of tiles that do not overlap, gray around
// them. A new image. REQUIRES: tiles are of `type`, or have no pixel.
cv::Mat place_tiles(const std::vector<PlacedTile>& tiles, int width,
                    codecs::PixelRows rows, int type);

// A new image; never shares pixels with `pixels`.
cv::Mat letterbox(const cv::Mat& pixels, const Letterbox& geometry);

}  // namespace headroom::augment
