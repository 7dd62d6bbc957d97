// A square of numbers between 0 and 1 as shades, with names at its sides.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

namespace headroom::chart {

struct MatrixChart {
  std::string title, row_title, column_title;
  std::vector<std::string> names;           // rows' names and columns'
  std::vector<std::vector<double>> values;  // [row][column]
  double least_shown = 0.005;  // smaller ones are left white, without a number
};

// RGB. Names and numbers as far as there is room for them.
cv::Mat draw_matrix_chart(const MatrixChart& chart);

}  // namespace headroom::chart
