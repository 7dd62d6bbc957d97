// Letterbox: scales an image to the network's size, keeping its aspect ratio.
// The rest of the network's input is gray 114, half of it on each side (with
// YOLOv5's rounding).
//
// Before letterboxing, every image is resized once while it is loaded, so that
// its longer side fits the network: see fit_size and resize_loaded.
#pragma once

#include <cstdint>
#include <opencv2/core/mat.hpp>
#include <opencv2/core/types.hpp>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/kernels/packed_sample.h"

namespace headroom::augment {

// The largest size with the image's aspect ratio within height x width. Sides
// are rounded up, but do not exceed `height` and `width`.
codecs::ImageSize fit_size(codecs::ImageSize source, int64_t height,
                           int64_t width);

// Resizes bilinearly if `bilinear` is true (in training) or when enlarging,
// else by area averaging. Returns `pixels` itself if it already has that size.
cv::Mat resize_loaded(const cv::Mat& pixels, codecs::ImageSize size,
                      bool bilinear);

struct LetterboxOptions {
  bool enlarge = true;    // whether the image may be enlarged
  bool smallest = false;  // pad only to the next multiple of the stride
  bool stretch = false;   // fill the target, changing the aspect ratio
  int64_t stride = 32;
};

struct Letterbox {
  int64_t height = 0, width = 0;  // size of the result
  int64_t resized_height = 0, resized_width = 0;
  int64_t top = 0, left = 0;        // first row and column of the picture
  double ratio_x = 1, ratio_y = 1;  // ratios before rounding
  double pad_x = 0, pad_y = 0;      // half of the padding; added to boxes
};

Letterbox letterbox_geometry(codecs::ImageSize source, int64_t height,
                             int64_t width, const LetterboxOptions& options);

// A picture of `size` whose first pixel is placed at (left, top) of a larger
// gray picture. Only its rows `held` are in memory.
struct PlacedPicture {
  codecs::ImageSize size;
  int left = 0, top = 0;
  codecs::PixelRows held;

  // The rows of this picture that are placed on rows `rows` of the larger
  // picture.
  codecs::PixelRows own_rows(codecs::PixelRows rows) const {
    return codecs::clamp_rows({rows.begin - top, rows.end - top}, size.height);
  }
};

// Pixels placed on a larger picture, with their first pixel at `origin`. Only
// the part in `seen` is visible, because other tiles cover the rest. `origin`
// and `seen` are in pixels of the larger picture.
struct PlacedTile {
  cv::Mat pixels;
  cv::Point origin;
  cv::Rect seen;
};

// The picture of a letterbox, with all its rows held.
PlacedPicture placed_picture(const Letterbox& geometry);

// Resizes to placed_picture()'s size. Returns `pixels` itself if it already has
// that size.
cv::Mat resize_to_letterbox(const cv::Mat& pixels, const Letterbox& geometry);

// Returns the tile of `pixels`, which are the rows `picture.held` of the
// picture.
PlacedTile placed_tile(const cv::Mat& pixels, const PlacedPicture& picture);

// Returns rows `rows`, `width` pixels wide, of a picture that consists of tiles
// on a gray background. Tiles do not overlap. Always returns a new image.
// REQUIRES: tiles have type `type` or are empty.
cv::Mat place_tiles(const std::vector<PlacedTile>& tiles, int width,
                    codecs::PixelRows rows, int type);

// Always returns a new image that shares no pixels with `pixels`.
cv::Mat letterbox(const cv::Mat& pixels, const Letterbox& geometry);

}  // namespace headroom::augment
