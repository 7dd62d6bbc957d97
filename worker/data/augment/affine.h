// Random perspective: YOLOv5's geometric augmentation, one 3 x 3 matrix
//
//   M = T S R P C     C  centre to the origin
//                     P  perspective, uniform +-
//                     R  rotation, +-degrees, and scale, 1 +- scale
//                     S  shear, +-degrees
//                     T  back to (0.5 +- translate) of the new size
//
// Pixels are fetched bilinearly, what lies outside is gray 114. Boxes become
// the hull of their four moved corners, clipped; what is left too small, too
// thin or too little of its former self is dropped.
// Geometry is in double.
#pragma once

#include <opencv2/core/matx.hpp>
#include <vector>

#include "configs/run_config.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/pixel_box.h"
#include "worker/data/sampling/random.h"

namespace headroom::augment {

struct Warp {
  cv::Matx33d matrix = cv::Matx33d::eye();
  double scale = 1;
};

// Always takes eight draws, whatever is switched off.
Warp draw_warp(const configs::Hyperparameters& hyp, codecs::ImageSize source,
               codecs::ImageSize target, sampling::RandomStream& draws);

// Does the warp leave every pixel where it is?
bool is_identity(const Warp& warp);

// The rows of the picture that rows `rows` of the warped one, `width` pixels
// wide, are made from; may be none.
codecs::PixelRows rows_to_warp(const Warp& warp, int width,
                               codecs::PixelRows rows,
                               const PlacedPicture& picture);

// Rows `rows` of the warped picture of tiles that do not overlap, gray around
// them: the bytes that the whole one would have. Tiles are of `type`, or have
// no pixel. REQUIRES: what the rows are made from (rows_to_warp) is in memory,
// as far as a tile has it.
cv::Mat warp_tiles(const std::vector<PlacedTile>& tiles, const Warp& warp,
                   int width, codecs::PixelRows rows, int type = CV_8UC3);

// The rows of a picture of that size, tiles or not, that are touched.
codecs::PixelRows rows_to_warp(const Warp& warp, int width,
                               codecs::PixelRows rows, codecs::ImageSize size);

// May return pixels shared with `image` when there is nothing to do.
labels::BoxedImage apply_warp(const labels::BoxedImage& image, const Warp& warp,
                              codecs::ImageSize target);

// The boxes alone, in the order of `boxes`.
std::vector<labels::PixelBox> warp_boxes(
    const std::vector<labels::PixelBox>& boxes, const Warp& warp,
    codecs::ImageSize target);

}  // namespace headroom::augment
