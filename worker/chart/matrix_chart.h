// A square matrix of numbers between 0 and 1 as shades, with names.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

namespace headroom::chart {

struct MatrixChart {
  std::string title, row_title, column_title;
  std::vector<std::string> names;           // used for rows and columns
  std::vector<std::vector<double>> values;  // [row][column]
  double least_shown = 0.005;  // smaller values are white and have no number
};

// Returns an RGB picture. Names and numbers are drawn if there is room.
cv::Mat draw_matrix_chart(const MatrixChart& chart);

}  // namespace headroom::chart
