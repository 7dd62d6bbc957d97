// The colours of all pictures that this program draws, in RGB.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <opencv2/core/types.hpp>

namespace headroom::chart {

inline const cv::Scalar kPaper{255, 255, 255};
inline const cv::Scalar kInk{20, 20, 20};
inline const cv::Scalar kGrid{225, 225, 225};
inline const cv::Scalar kFaint{200, 200, 200};  // for a line among very many
inline const cv::Scalar kMark{120, 120, 120};   // for a line at a named time
inline const cv::Scalar kMean{0, 40, 200};      // for the mean of many lines

// Distinguishable colours, which repeat after nine. The first one is gray.
inline cv::Scalar chart_colour(size_t index) {
  static const std::array<cv::Scalar, 9> colours = {cv::Scalar(170, 170, 170),
                                                    {31, 119, 180},
                                                    {255, 127, 14},
                                                    {148, 103, 189},
                                                    {140, 86, 75},
                                                    {44, 160, 44},
                                                    {23, 190, 207},
                                                    {214, 39, 40},
                                                    {188, 189, 34}};
  return colours[index % colours.size()];
}

// White for 0, deep blue for 1.
inline cv::Scalar value_shade(double value) {
  const double v = std::clamp(value, 0.0, 1.0);
  return {247 - v * 239, 251 - v * 203, 255 - v * 148};
}

// Light blue, visible on paper, for 0; deep blue for 1.
inline cv::Scalar density_shade(double value) {
  return {205 - 197 * value, 225 - 177 * value, 243 - 136 * value};
}

// Black or white, whichever is legible on that colour.
inline cv::Scalar ink_on(const cv::Scalar& colour) {
  const double brightness =
      0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2];
  return brightness > 140 ? cv::Scalar(0, 0, 0) : kPaper;
}

}  // namespace headroom::chart
