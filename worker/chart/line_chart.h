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
    bool dotted = false;  // draw only the points
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

}  // namespace headroom::chart
