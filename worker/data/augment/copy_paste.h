// Copy-paste: objects with an outline, put once more into their own picture,
// mirrored left-right (YOLOv5's form of Ghiasi and others: "Simple Copy-Paste
// is a Strong Data Augmentation Method for Instance Segmentation", 2021).
//
// A mirrored object is kept where it hides less than kMostHidden of the area of
// every box that is there, those pasted before it included. A mirrored pixel
// lies in the row it came from, so rows of a picture can be made alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <opencv2/core/mat.hpp>
#include <opencv2/core/types.hpp>
#include <span>
#include <vector>

#include "worker/data/labels/pixel_box.h"
#include "worker/data/sampling/random.h"

namespace headroom::augment {

inline constexpr double kMostHidden = 0.3;  // this much is too much

// An outline in pixels of the picture; its last point is joined to its first.
using PixelOutline = std::vector<cv::Point2d>;

struct OutlinedBox {
  size_t box = 0;  // its place among the picture's
  PixelOutline outline;
};

// Draws round(share x objects) objects without repetition, one draw each.
// Returns the mirrored outlines of those that are pasted and appends their
// boxes. REQUIRES: 0 <= share <= 1.
std::vector<PixelOutline> draw_pastes(double share, double width,
                                      std::span<const OutlinedBox> objects,
                                      std::vector<labels::PixelBox>& boxes,
                                      sampling::RandomStream& draws);

// `pixels` are rows of the picture, the first of them its
// `first_row`. Where a pixel's centre is inside an outline (crossing the
// outline an odd number of times), it becomes the mirrored one of before.
void paste_mirrored(cv::Mat& pixels, int64_t first_row,
                    std::span<const PixelOutline> outlines);

}  // namespace headroom::augment
