// WarpMap: computes the source position of each pixel of a warped picture.
//
// Uses the fixed-point arithmetic of OpenCV's warpAffine and warpPerspective
// (4.6): whole pixels and 32nds of them (worker/kernels/pixel_math.h). OpenCV
// warps a whole picture at once; here a row depends only on its number, so that
// some rows can be computed with the bytes that they have in the whole picture.
#pragma once

#include <cstdint>
#include <opencv2/core/matx.hpp>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/kernels/pixel_math.h"

namespace headroom::augment {

// A rectangle of pixels, [left, right) x [top, bottom).
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

  // Computes for each pixel of row `y` of the target its position in the
  // source, in 32nds of a pixel. REQUIRES: xs and ys have room for width()
  // numbers.
  void place_row(int64_t y, int* xs, int* ys) const;

  // The rows of a source picture that rows `rows` of the target are computed
  // from. The picture has size `source`, and its first pixel is at (origin_x,
  // origin_y) of the map.
  codecs::PixelRows touched_rows(codecs::PixelRows rows, int origin_x,
                                 int origin_y, codecs::ImageSize source) const;

  // A rectangle that contains all source pixels that rows `rows` of the target
  // read, independent of the source's size. REQUIRES: `rows` is not empty.
  PixelBounds bounds(codecs::PixelRows rows) const;

 private:
  void place_affine(double y, int* xs, int* ys) const;
  void place_perspective(double y, int* xs, int* ys) const;
  // Whether affine positions of rows `rows` may overflow an int.
  bool may_wrap(codecs::PixelRows rows) const;

  int width_;
  kernels::WarpInverse inverse_;
  std::vector<int> along_x_, along_y_;  // affine: for each column, in 1024ths
};

}  // namespace headroom::augment
