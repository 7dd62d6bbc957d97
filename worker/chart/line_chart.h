// Lines over a common axis, with a legend beside them where they have names.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>
#include <utility>
#include <vector>

#include "worker/chart/chart_frame.h"

namespace headroom::chart {

struct LineChart {
  struct Line {
    std::string name;  // "": not in the legend
    cv::Scalar colour;
    int width = 2;        // pixels
    bool dotted = false;  // its points alone
    // Points that are not finite are left out: the line is broken there.
    std::vector<std::pair<double, double>> points;
  };
  std::string title;
  ChartAxis x, y;
  std::vector<Line> lines;  // the last is on top
};

// Draws into the given part of a picture, on white.
void draw_line_chart(const LineChart& chart, cv::Mat& picture, cv::Rect place);

// A picture of its own, RGB.
cv::Mat draw_line_chart(const LineChart& chart, cv::Size size);

// Labelled points, joined in the given order.
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
