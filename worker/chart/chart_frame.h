// ChartFrame: draws two axes with ticks and titles into part of a picture.
#pragma once

#include <functional>
#include <opencv2/core.hpp>
#include <string>
#include <vector>

#include "worker/chart/palette.h"

namespace headroom::chart {

struct ChartAxis {
  std::string title;
  double end = 1;                              // greater than `begin`
  std::function<std::string(double)> text_of;  // formats a tick
  double begin = 0;
};

// The multiples of a step from `begin` to `end`. The step is 1, 2 or 5 times a
// power of ten, so that there are 3 to 8 multiples if `begin` is 0.
std::vector<double> chart_ticks(double begin, double end);

class ChartFrame {
 public:
  // `place` includes the titles and ticks.
  ChartFrame(cv::Mat& picture, cv::Rect place, ChartAxis x, ChartAxis y);

  // Call draw_grid() first and draw_axes() last.
  void draw_grid();
  void draw_axes();

  cv::Point at(double x, double y) const;
  cv::Rect inside() const { return inside_; }

 private:
  cv::Mat& picture_;
  const ChartAxis x_, y_;
  const cv::Rect inside_;
};

}  // namespace headroom::chart
