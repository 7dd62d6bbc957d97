// Copy-paste: pastes objects that have an outline a second time into their own
// picture, mirrored left-right (YOLOv5's variant of Ghiasi and others: "Simple
// Copy-Paste is a Strong Data Augmentation Method for Instance Segmentation",
// 2021).
//
// A mirrored object is pasted only if it hides less than kMostHidden of the
// area of every box, including boxes of objects pasted before it. A mirrored
// pixel stays in its row, so some rows of a picture can be computed without the
// others.
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

// Objects that hide this share of a box's area, or more, are not pasted.
inline constexpr double kMostHidden = 0.3;

// An outline in pixels of the picture. The last point connects to the first.
using PixelOutline = std::vector<cv::Point2d>;

struct OutlinedBox {
  size_t box = 0;  // index among the picture's boxes
  PixelOutline outline;
};

// Draws round(share x objects) objects without repetition, with one draw for
// each. Returns the mirrored outlines of the drawn objects that are to be
// pasted, and appends their mirrored boxes to `boxes`. REQUIRES: 0 <= share <=
// 1.
std::vector<PixelOutline> draw_pastes(double share, double width,
                                      std::span<const OutlinedBox> objects,
                                      std::vector<labels::PixelBox>& boxes,
                                      sampling::RandomStream& draws);

// `pixels` are consecutive rows of the picture that begin at row `first_row`.
// Each pixel whose centre is inside an outline takes the value that its mirror
// pixel had before. A centre is inside if a line to it from outside crosses the
// outline an odd number of times.
void paste_mirrored(cv::Mat& pixels, int64_t first_row,
                    std::span<const PixelOutline> outlines);

}  // namespace headroom::augment
