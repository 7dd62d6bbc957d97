// Mosaic: four or nine images on a canvas twice the network's size.
//
// Four images around a point:
//
//        +------------------+   centre: uniform in [W/2, 3W/2] x [H/2, 3H/2]
//        |       1st |2nd   |   each image touches it with its inner corner
//        |   --------+----- |   and is cut where it leaves the canvas
//        |       3rd |4th   |
//        +------------------+   2H x 2W, filled with gray 114
//
// Nine in a square of 3 x 3 places of the network's size, each pushed towards
// the middle one, where an image lies centred; of this the canvas is a random
// part, 2H x 2W.
//
// The random perspective that follows cuts the network's H x W out of it.
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

// A part of an image and its place on the canvas; both have one size.
struct MosaicTile {
  cv::Rect canvas;
  cv::Rect image;
};

// REQUIRES: 0 <= quarter < 4 (left to right, top to bottom).
MosaicTile mosaic_tile(int quarter, cv::Point centre, codecs::ImageSize image,
                       codecs::ImageSize canvas);

// A tile of a mosaic of nine; `corner` is the canvas's first pixel in the
// square, `place` counts from left to right and top to bottom.
// REQUIRES: 0 <= place < 9; the image fits a place.
MosaicTile mosaic_tile_of_nine(int place, cv::Point corner,
                               codecs::ImageSize image,
                               codecs::ImageSize canvas);

struct MosaicPlan {
  cv::Point centre;  // nine tiles: the canvas's corner
  // The tiles' samples, 4 by quarter or 9 by place.
  std::vector<int64_t> samples = std::vector<int64_t>(4);
};

// A sample that joins another's mosaic.
using DrawPartner = std::function<int64_t()>;

// `sample` itself and three drawn with replacement, in random order; with
// probability `nine` eight. `partner` takes its numbers from `draws` too.
MosaicPlan draw_mosaic(int64_t sample, const DrawPartner& partner,
                       int64_t height, int64_t width, double nine,
                       sampling::RandomStream& draws);

// A mosaic: tiles side by side, and the boxes on it.
struct Mosaic {
  std::vector<PlacedTile> tiles;
  int type = CV_8UC3;                   // their pixels' type
  std::vector<labels::PixelBox> boxes;  // clipped to the canvas
  // The boxes that have an outline, clipped to the canvas too.
  std::vector<OutlinedBox> outlines;
};

// Builds the parts of the tiles that lie in rows `rows` of the canvas, and all
// boxes. Appends the faults of the images.
Mosaic build_mosaic(const MosaicPlan& plan, int64_t height, int64_t width,
                    codecs::PixelRows rows, const LoadImage& load,
                    std::vector<std::string>& faults);

// Replaces the mosaic's tiles by one of that width, which shows rows `rows`
// with objects pasted into them (copy_paste.h).
void paste_objects(Mosaic& mosaic, std::span<const PixelOutline> outlines,
                   int width, codecs::PixelRows rows);

}  // namespace headroom::augment
