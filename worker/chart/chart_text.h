// Draws text into pictures. ASCII is drawn in OpenCV's font, which is equal on
// every machine. Text with other letters uses fonts of this machine, found by
// fontconfig and drawn by FreeType letter by letter: scripts with joined
// letters are legible, but the letters are not joined. A letter that no font
// has is written as its number, "\u732B", and a warning reports this once.
//
// Threads: any.
#pragma once

#include <functional>
#include <opencv2/core.hpp>
#include <string>

#include "worker/chart/palette.h"

namespace headroom::chart {

// Draws text whose base line begins at `left`. `scale`: OpenCV's font scale.
void draw_text(cv::Mat& picture, const std::string& text, cv::Point left,
               double scale = 0.45, const cv::Scalar& colour = kInk,
               int stroke = 1);
cv::Size text_size(const std::string& text, double scale = 0.45,
                   int* baseline = nullptr, int stroke = 1);

// Shortens the text to the width of `columns` narrow letters; "..." replaces
// the removed part. Invalid bytes become '?'.
std::string shortened(const std::string& text, size_t columns);

// Shortens the text to a width of `pixels`. Letters that no font has are drawn
// as numbers, which are wider.
std::string shortened_to(const std::string& text, int pixels, double scale,
                         int stroke = 1);

// The Debian package that has fonts for the letter's script.
const char* font_package_of(char32_t letter);

// Returns the text with each letter for which `has_letter` is false replaced by
// the letter's number.
std::u32string with_numbers(const std::string& text,
                            const std::function<bool(char32_t)>& has_letter);

}  // namespace headroom::chart
