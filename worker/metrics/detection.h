// Detections and labels as plain values: the output of post-processing, and the
// input of the metrics.
//
// They contain no pointers, so ranks exchange arrays of them as bytes. All
// arithmetic is float32, as in YOLOv5.
#pragma once

#include <cstdint>

namespace headroom::metrics {

// Corners in pixels. Each function documents which picture's pixels it uses.
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

// Intersection over union in float32, as YOLOv5 computes it. `epsilon` is added
// to the union. 0 if the boxes do not intersect, also for two equal points.
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

// Maps a source image to the network's input: input = source * ratio + pad.
struct SourceMapping {
  int64_t height = 0;  // size of the source
  int64_t width = 0;
  double ratio = 1;
  double pad_x = 0;
  double pad_y = 0;
};

// Converts a label, centre and size as fractions of a picture, to pixels of
// that picture. (Tiles are cut in float64: data/labels/pixel_box.h.)
Corners label_corners(double cx, double cy, double w, double h, int64_t height,
                      int64_t width);

// Converts input pixels to source pixels.
Corners to_source(const Corners& box, const SourceMapping& mapping);

// The part of a box, in source pixels, that is inside the source image.
Corners clipped(const Corners& box, const SourceMapping& mapping);

}  // namespace headroom::metrics
