// The three forms that a box takes on its way from a label to the network.
//
//   BoxLabel       as indexed, normalised to the source image, float32
//   PixelBox       corners in pixels of the current picture, float64
//   NormalizedBox  centre and size as fractions of the network's image
#pragma once

#include <cstdint>
#include <opencv2/core/mat.hpp>
#include <span>
#include <vector>

#include "worker/data/labels/label_file.h"

namespace headroom::labels {

struct PixelBox {
  int32_t class_index = 0;
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  double width() const { return x2 - x1; }
  double height() const { return y2 - y1; }
  bool operator==(const PixelBox&) const = default;
};

struct NormalizedBox {
  int32_t class_index = 0;
  double cx = 0, cy = 0, w = 0, h = 0;
  bool operator==(const NormalizedBox&) const = default;
};

// A picture, and boxes in pixel coordinates of it.
struct BoxedImage {
  cv::Mat pixels;
  std::vector<PixelBox> boxes;
};

// The position of a picture inside a larger one: it is scaled to width x
// height, then moved by (x, y), all in pixels of the larger picture.
struct Placement {
  double width = 0, height = 0;
  double x = 0, y = 0;
};
std::vector<PixelBox> place_boxes(std::span<const BoxLabel> labels,
                                  const Placement& placement);

void clip_boxes(std::vector<PixelBox>& boxes, double width, double height);

// Clips boxes to the image minus a thousandth of a pixel at its right and lower
// edge, so that no centre falls into the first cell beyond the image.
std::vector<NormalizedBox> normalize_boxes(std::vector<PixelBox> boxes,
                                           int64_t width, int64_t height);

}  // namespace headroom::labels
