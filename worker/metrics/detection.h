// Detection and ground truth as plain values: what post-processing makes and
// what the metrics compare.
//
// They hold no pointers, so arrays of them travel between ranks as bytes. All
// arithmetic is in float32, as the reference's.
#pragma once

#include <cstdint>

namespace headroom::metrics {

// Corners in pixels; which image's pixels is the function's business.
struct Corners {
  float x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};

struct Detection {
  Corners box;
  float confidence = 0;
  int32_t class_index = 0;
};

struct LabelledBox {
  Corners box;
  int32_t class_index = 0;
};

// Intersection over union in float32, as the reference computes it; `epsilon`
// is added to the union. 0 where nothing is shared, also between two points.
inline float corner_iou(const Corners& a, const Corners& b, float epsilon) {
  const float left = a.x1 > b.x1 ? a.x1 : b.x1;
  const float right = a.x2 < b.x2 ? a.x2 : b.x2;
  const float top = a.y1 > b.y1 ? a.y1 : b.y1;
  const float bottom = a.y2 < b.y2 ? a.y2 : b.y2;
  const float w = right - left > 0 ? right - left : 0;
  const float h = bottom - top > 0 ? bottom - top : 0;
  const float shared = w * h;
  if (shared == 0) return 0;
  const float area_a = (a.x2 - a.x1) * (a.y2 - a.y1);
  const float area_b = (b.x2 - b.x1) * (b.y2 - b.y1);
  return shared / (area_a + area_b - shared + epsilon);
}

// How a source image lies in the network's input: input = source*ratio + pad.
struct SourceMapping {
  int64_t height = 0;  // the source's
  int64_t width = 0;
  double ratio = 1;
  double pad_x = 0;
  double pad_y = 0;
};

// A label, centre and size as fractions of a picture, in that picture's pixels.
// (Tiles are cut in float64: data/labels/pixel_box.h.)
Corners label_corners(double cx, double cy, double w, double h, int64_t height,
                      int64_t width);

// Input pixels to source pixels, clipped to the image.
Corners to_source(const Corners& box, const SourceMapping& mapping);

}  // namespace headroom::metrics
