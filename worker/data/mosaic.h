// Mosaic: four images around a point of a canvas twice the network's size.
//
//        +------------------+   centre: uniform in [W/2, 3W/2] x [H/2, 3H/2]
//        |       1st |2nd   |   each image touches it with its inner corner
//        |   --------+----- |   and is cut where it leaves the canvas
//        |       3rd |4th   |
//        +------------------+   2H x 2W, filled with gray 114
//
// The random perspective that follows cuts the network's H x W out of it.
#pragma once

#include <array>
#include <cstdint>
#include <opencv2/core/types.hpp>
#include <string>
#include <vector>

#include "worker/data/image.h"
#include "worker/data/letterbox.h"
#include "worker/data/loaded_image.h"
#include "worker/data/pixel_box.h"
#include "worker/data/random.h"

namespace headroom {

// Which part of an image goes where; both parts have one size.
struct MosaicTile {
  cv::Rect canvas;
  cv::Rect image;
};

// REQUIRES: 0 <= quarter < 4 (left to right, top to bottom).
MosaicTile mosaic_tile(int quarter, cv::Point centre, ImageSize image,
                       ImageSize canvas);

struct MosaicPlan {
  cv::Point centre;
  std::array<int64_t, 4> samples{};  // by quarter
};

// `sample` itself and three drawn with replacement, in random order.
MosaicPlan draw_mosaic(int64_t sample, int64_t num_samples, int64_t height,
                       int64_t width, RandomStream& draws);

// A mosaic: tiles side by side, and the boxes on it.
struct Mosaic {
  std::vector<PlacedTile> tiles;
  std::vector<PixelBox> boxes;  // clipped to the canvas
};

// With what of its tiles lies in rows `rows` of the canvas; all boxes. Faults
// of the images are appended.
Mosaic build_mosaic(const MosaicPlan& plan, int64_t height, int64_t width,
                    PixelRows rows, const LoadImage& load,
                    std::vector<std::string>& faults);

}  // namespace headroom
