// find_anchors: shapes that answer for a data set's boxes.
//
// YOLOv5's AutoAnchor: k-means over the boxes of which a side has 2 pixels or
// more (30 rounds), then 1,000 mutations, each kept when it raises the fitness
// (box_fit.h): every side is multiplied by 1 + N(0, 0.1), within 0.3 to 3, with
// probability 0.9. No side is below 2 pixels. Every draw is a function of the
// seed.
//
// Threads: a function; it starts some of its own, and their number changes no
// bit.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/anchors/box_fit.h"

namespace headroom::anchors {

inline constexpr float kLeastSearchedSide = 2;  // pixels

// Boxes that the search looks at.
std::vector<BoxSize> searched_boxes(const std::vector<BoxSize>& boxes);

// `num_anchors` by rising area, in hundredths of a pixel; none where the boxes
// have fewer different sizes. REQUIRES: threshold > 1.
std::vector<Anchor> find_anchors(const std::vector<BoxSize>& boxes,
                                 int64_t num_anchors, double threshold,
                                 uint64_t seed, int64_t num_threads);

}  // namespace headroom::anchors
