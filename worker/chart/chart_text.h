// Text in pictures. ASCII is drawn in OpenCV's own font, alike on every
// machine; text with other letters in fonts of this machine, which fontconfig
// finds and FreeType draws, one letter after another: scripts that join their
// letters stay legible, but are not typeset. A letter that no font has is
// written as its number, "\u732B", and a warning says so once.
//
// Threads: any.
#pragma once

#include <functional>
#include <opencv2/core.hpp>
#include <string>

#include "worker/chart/palette.h"

namespace headroom::chart {

// Draws text that starts at `left`, the beginning of the base line. The scale
// is OpenCV's.
void draw_text(cv::Mat& picture, const std::string& text, cv::Point left,
               double scale = 0.45, const cv::Scalar& colour = kInk,
               int stroke = 1);
cv::Size text_size(const std::string& text, double scale = 0.45,
                   int* baseline = nullptr, int stroke = 1);

// What fits into so many columns of narrow letters, "..." where some letters
// are left out; bytes that are no letters are '?'.
std::string shortened(const std::string& text, size_t columns);

// The same for so many pixels of width: letters that no font has, and are drawn
// as their numbers, take more of them.
std::string shortened_to(const std::string& text, int pixels, double scale,
                         int stroke = 1);

// Debian's package of fonts that has the letter's script.
const char* font_package_of(char32_t letter);

// The text with each letter that `has_letter` denies as its number.
std::u32string with_numbers(const std::string& text,
                            const std::function<bool(char32_t)>& has_letter);

}  // namespace headroom::chart
