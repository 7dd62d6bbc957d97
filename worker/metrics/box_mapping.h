// Boxes between the network's letterboxed input and the source image.
//
// Threads: pure. Arithmetic in float32, as the reference's.
#pragma once

#include <cstdint>

#include "worker/metrics/detection.h"

namespace headroom::metrics {

// How a source image lies in the network's input: input = source*ratio + pad.
struct SourceMapping {
  int64_t height = 0;  // of the source
  int64_t width = 0;
  double ratio = 1;
  double pad_x = 0;
  double pad_y = 0;
};

// A label, centre and size as fractions of a picture, in that picture's pixels.
// (Tiles are cut in float64: data/pixel_box.h.)
Corners label_corners(double cx, double cy, double w, double h, int64_t height,
                      int64_t width);

// Input pixels to source pixels, clipped to the image.
Corners to_source(const Corners& box, const SourceMapping& mapping);

}  // namespace headroom::metrics
