// Random perspective: YOLOv5's geometric augmentation, one 3 x 3 matrix
//
//   M = T S R P C     C  centre to the origin
//                     P  perspective, uniform +-
//                     R  rotation, +-degrees, and scale, 1 +- scale
//                     S  shear, +-degrees
//                     T  back to (0.5 +- translate) of the new size
//
// Pixels are interpolated bilinearly, and pixels outside the source are gray
// 114. A box becomes the bounding box of its four transformed corners, clipped
// to the picture. The box is dropped if the result is too small, too thin, or
// covers too little of the original box's area. Geometry is computed in double.
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

// Always takes eight draws, also if parts of the warp are switched off.
Warp draw_warp(const configs::Hyperparameters& hyp, codecs::ImageSize source,
               codecs::ImageSize target, sampling::RandomStream& draws);

// Whether the warp leaves every pixel in place.
bool is_identity(const Warp& warp);

// The rows of `picture` from which rows `rows` of the warped picture, `width`
// pixels wide, are computed. The range may be empty.
codecs::PixelRows rows_to_warp(const Warp& warp, int width,
                               codecs::PixelRows rows,
                               const PlacedPicture& picture);

// Warps a picture that consists of tiles on a gray background, and returns rows
// `rows` of the result. Their bytes are the same as if all rows were computed.
// Tiles do not overlap. Tiles have type `type` or are empty. REQUIRES: of each
// tile, the rows that are read (rows_to_warp) are in memory.
cv::Mat warp_tiles(const std::vector<PlacedTile>& tiles, const Warp& warp,
                   int width, codecs::PixelRows rows, int type = CV_8UC3);

// As the overload above, for a source that is one whole picture of `size`.
codecs::PixelRows rows_to_warp(const Warp& warp, int width,
                               codecs::PixelRows rows, codecs::ImageSize size);

// If the warp changes nothing, the result shares its pixels with `image`.
labels::BoxedImage apply_warp(const labels::BoxedImage& image, const Warp& warp,
                              codecs::ImageSize target);

// Transforms only the boxes, keeping their order.
std::vector<labels::PixelBox> warp_boxes(
    const std::vector<labels::PixelBox>& boxes, const Warp& warp,
    codecs::ImageSize target);

}  // namespace headroom::augment
