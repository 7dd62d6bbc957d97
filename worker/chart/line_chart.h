// A chart of lines over a common axis, with a legend if the lines have names.
#pragma once

#include <opencv2/core/mat.hpp>
#include <string>
#include <utility>
#include <vector>

#include "worker/chart/chart_frame.h"

namespace headroom::chart {

struct LineChart {
  struct Line {
    std::string name;  // "" is not shown in the legend
    cv::Scalar colour;
    int width = 2;        // pixels
    bool dotted = false;  // only the points
    // Points that are not finite are gaps in the line.
    std::vector<std::pair<double, double>> points;
  };
  std::string title;
  ChartAxis x, y;
  std::vector<Line> lines;  // the last one is on top
};

// Draws into the given part of a picture, on white.
void draw_line_chart(const LineChart& chart, cv::Mat& picture, cv::Rect place);

// Returns a new RGB picture.
cv::Mat draw_line_chart(const LineChart& chart, cv::Size size);

// Labelled points, joined in the given order.
struct PointChart {
  struct Point {
    double x = 0, y = 0;  // between 0 and the ends of the axes
    std::string label;
    size_t colour = 0;  // an index for chart_colour
  };
  std::string title;
  ChartAxis x, y;
  std::vector<Point> points;
  bool joined = true;
};

// Returns an RGB picture.
cv::Mat draw_point_chart(const PointChart& chart);

}  // namespace headroom::chart
