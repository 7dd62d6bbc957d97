// EXIF orientation: how a camera was held, as one number.
//
// 1 upright, 2 mirrored, 3 turned by 180 degrees, 4 upside down mirrored,
// 5 transposed, 6 to be turned right by 90, 7 anti-transposed, 8 to be turned
// left by 90 (CIPA DC-008, tag 0x0112).
#pragma once

#include <cstdint>
#include <opencv2/core/mat.hpp>
#include <span>

namespace headroom::codecs {

// `exif` is a TIFF structure ("II*" or "MM*"), with or without "Exif" and two
// zero bytes before it. Returns 1 if the structure has no valid orientation.
int exif_orientation(std::span<const uint8_t> exif);

// Whether the orientation swaps height and width.
inline bool swaps_axes(int orientation) { return orientation >= 5; }

// Returns the pixels turned upright. REQUIRES: 1 <= orientation <= 8.
cv::Mat upright(cv::Mat pixels, int orientation);

}  // namespace headroom::codecs
