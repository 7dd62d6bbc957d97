// Mosaic: four or nine images on a canvas twice the network's size.
//
// Four images around a point:
//
//        +------------------+   centre: uniform in [W/2, 3W/2] x [H/2, 3H/2]
//        |       1st |2nd   |   each image has its inner corner there and is
//        |   --------+----- |   cut at the edge of the canvas
//        |       3rd |4th   |
//        +------------------+   2H x 2W, filled with gray 114
//
// Nine images are placed in a square of 3 x 3 places, each of the network's
// size. Within its place, each image is moved towards the middle of the square;
// the middle image is centred. The canvas is a random part of this square, 2H x
// 2W.
//
// The random perspective that follows takes H x W out of the canvas.
#pragma once

#include <cstdint>
#include <functional>
#include <opencv2/core/types.hpp>
#include <span>
#include <string>
#include <vector>

#include "worker/data/augment/copy_paste.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/augment/loaded_image.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/pixel_box.h"
#include "worker/data/sampling/random.h"

namespace headroom::augment {

// A part of an image, and its place on the canvas. Both have the same size.
struct MosaicTile {
  cv::Rect canvas;
  cv::Rect image;
};

// The tile of one of four images. REQUIRES: 0 <= quarter < 4 (left to right,
// top to bottom).
MosaicTile mosaic_tile(int quarter, cv::Point centre, codecs::ImageSize image,
                       codecs::ImageSize canvas);

// The tile of one of nine images. `corner` is the position of the canvas's
// first pixel in the square; `place` counts from left to right and top to
// bottom. REQUIRES: 0 <= place < 9; the image fits a place.
MosaicTile mosaic_tile_of_nine(int place, cv::Point corner,
                               codecs::ImageSize image,
                               codecs::ImageSize canvas);

struct MosaicPlan {
  cv::Point centre;  // with nine tiles: mosaic_tile_of_nine's `corner`
  // The samples of the tiles: 4 in the order of quarters, or 9 in the order of
  // places.
  std::vector<int64_t> samples = std::vector<int64_t>(4);
};

// Draws a sample to join another sample's mosaic.
using DrawPartner = std::function<int64_t()>;

// Plans a mosaic of `sample` and three others, drawn with replacement, in
// random order; with probability `nine` there are eight others. `partner` must
// take its random numbers from `draws`.
MosaicPlan draw_mosaic(int64_t sample, const DrawPartner& partner,
                       int64_t height, int64_t width, double nine,
                       sampling::RandomStream& draws);

// A mosaic: tiles that do not overlap, and the boxes on them.
struct Mosaic {
  std::vector<PlacedTile> tiles;
  int type = CV_8UC3;                   // type of the tiles' pixels
  std::vector<labels::PixelBox> boxes;  // clipped to the canvas
  // The boxes that have an outline; outlines are clipped to the canvas.
  std::vector<OutlinedBox> outlines;
};

// Builds the parts of tiles that are in rows `rows` of the canvas, and all
// boxes. Appends the faults of the images.
Mosaic build_mosaic(const MosaicPlan& plan, int64_t height, int64_t width,
                    codecs::PixelRows rows, const LoadImage& load,
                    std::vector<std::string>& faults);

// Replaces the mosaic's tiles by a single tile, `width` pixels wide, of rows
// `rows` of the canvas with the objects pasted into them (copy_paste.h).
void paste_objects(Mosaic& mosaic, std::span<const PixelOutline> outlines,
                   int width, codecs::PixelRows rows);

}  // namespace headroom::augment
