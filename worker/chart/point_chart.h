// Labelled points, joined in the given order.
//
// Threads: pure functions.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "worker/chart/chart_frame.h"

namespace headroom::chart {

struct PointChart {
  struct Point {
    double x = 0, y = 0;  // >= 0, at most the axes' ends
    std::string label;
    size_t colour = 0;  // chart_colour
  };
  std::string title;
  ChartAxis x, y;
  std::vector<Point> points;
  bool joined = true;
};

// RGB.
cv::Mat draw_point_chart(const PointChart& chart);

}  // namespace headroom::chart
