// WarpMap: where each pixel of a warped picture comes from.
//
// The fixed-point arithmetic of OpenCV's warpAffine and warpPerspective (4.6):
// whole pixels and 32nds of them (worker/kernels/pixel_math.h). OpenCV warps a
// whole picture at once; here a row depends on nothing but its number, so that
// some rows of a warped picture have the bytes that they have in the whole one.
#pragma once

#include <cstdint>
#include <opencv2/core/matx.hpp>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/kernels/pixel_math.h"

namespace headroom::augment {

// Pixels [left, right) x [top, bottom).
struct PixelBounds {
  int left = 0, right = 0, top = 0, bottom = 0;
};

class WarpMap {
 public:
  // `matrix` maps source to target; the target is `width` pixels wide.
  // REQUIRES: width > 0.
  WarpMap(const cv::Matx33d& matrix, int width);

  int width() const { return width_; }
  const kernels::WarpInverse& inverse() const { return inverse_; }

  // Row `y` of the target: for each pixel its place in the source, in 32nds of
  // a pixel. REQUIRES: room for width() numbers of each.
  void place_row(int64_t y, int* xs, int* ys) const;

  // The rows of a source picture of that size, its first pixel at
  // (origin_x, origin_y) of the map, that rows `rows` of the target touch.
  codecs::PixelRows touched_rows(codecs::PixelRows rows, int origin_x,
                                 int origin_y, codecs::ImageSize source) const;

  // A rectangle of the source, of whatever size that is, outside of which rows
  // `rows` of the target touch nothing. REQUIRES: rows that are not empty.
  PixelBounds bounds(codecs::PixelRows rows) const;

 private:
  void place_affine(double y, int* xs, int* ys) const;
  void place_perspective(double y, int* xs, int* ys) const;
  // Are affine places of those rows so far out that an int may overflow?
  bool may_wrap(codecs::PixelRows rows) const;

  int width_;
  kernels::WarpInverse inverse_;
  std::vector<int> along_x_, along_y_;  // affine: by column, in 1024ths
};

}  // namespace headroom::augment
