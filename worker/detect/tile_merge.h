// From the detections of overlapping tiles to those of the image.
//
// An object in an overlap is seen by several tiles: whole by some, cut by the
// border of others. A box that touches a border of its tile inside the image is
// taken for cut. Whole boxes come first, by descending confidence, then cut
// ones; a box is dropped where one of its class was kept that
//
//   overlaps it by more than the threshold (intersection over union), or,
//   if it is cut, covers more than half of it: its rest lies in another tile
//
// What no tile sees whole stays in pieces: let tiles overlap by the size of the
// largest object. No class offset is added to coordinates, and there is no time
// limit.
//
// Pure; float32.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/tiles/tile_grid.h"
#include "worker/metrics/detection.h"

namespace headroom::detect {

struct TileDetection {
  metrics::Detection detection;  // in pixels of the image
  bool is_cut = false;
};

// Does the box, in pixels of the image, touch an inner border of its tile?
bool is_cut(const metrics::Corners& box, const tiles::TileRect& tile,
            int64_t image_height, int64_t image_width);

struct MergeOptions {
  double iou_threshold = 0.45;
  bool agnostic = false;  // boxes of other classes count too
  int64_t max_detections = 1000;
};

// In descending confidence; equal ones keep their order.
std::vector<metrics::Detection> merge_tiles(std::vector<TileDetection> all,
                                            const MergeOptions& options);

}  // namespace headroom::detect
