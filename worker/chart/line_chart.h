// Lines over a common axis, with a legend beside them where they have names.
//
// Threads: pure functions.
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
    // Those that are not finite are left out, and the line is broken there.
    std::vector<std::pair<double, double>> points;
  };
  std::string title;
  ChartAxis x, y;
  std::vector<Line> lines;  // the last is on top
};

// Into the given part of a picture, on white.
void draw_line_chart(const LineChart& chart, cv::Mat& picture, cv::Rect place);

// A picture of its own, RGB.
cv::Mat draw_line_chart(const LineChart& chart, cv::Size size);

}  // namespace headroom::chart
