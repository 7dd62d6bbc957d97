// Fields of one row of a detection head, in YOLOv5's order: x, y, width,
// height, objectness, then one score per class.
#pragma once

#include <cstdint>

namespace headroom {

inline constexpr int64_t kBoxFields = 4;
inline constexpr int64_t kObjectness = 4;
inline constexpr int64_t kFirstClass = 5;

}  // namespace headroom
