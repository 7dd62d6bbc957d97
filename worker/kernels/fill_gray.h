// The gray that surrounds pictures: all bands of a pixel where none is.
#pragma once

#include <cstdint>

namespace headroom::kernels {

inline constexpr uint8_t kFillGray = 114;

}  // namespace headroom::kernels
