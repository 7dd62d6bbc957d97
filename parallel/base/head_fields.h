// Fields of one row of a detection head, in YOLOv5's order: x, y, width,
// height, objectness, then one score per class.
#pragma once

#include <cstdint>

namespace headroom {

inline constexpr int64_t kBoxFields = 4;
inline constexpr int64_t kObjectness = 4;
inline constexpr int64_t kFirstClass = 5;

// A head without anchors has logits for the distance from a cell's centre to
// each side of a box (left, top, right, bottom): a distance is the mean of 0 to
// 15 cells under their softmax.
inline constexpr int64_t kBoxSides = 4;
inline constexpr int64_t kDistanceBins = 16;

}  // namespace headroom
