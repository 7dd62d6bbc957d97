// A chart of stacked parts of a whole over time, in panels.
//
// If several samples belong to the same column of pixels, the one with the
// largest sum of parts is drawn, so no peak is lost.
#pragma once

#include <functional>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

namespace headroom::chart {

struct AreaPanel {
  // A sample is valid from `time` to the next sample. Times ascend.
  struct Sample {
    double time = 0;
    std::vector<double> parts;  // one per name, >= 0
  };
  struct Mark {
    double time = 0;
    std::string name;  // the phase that begins; "" only ends the last phase
  };
  std::string title;
  std::vector<Sample> samples;
  std::vector<Mark> marks;
};

struct AreaChart {
  std::string title, time_title;
  std::vector<std::string> part_names;
  std::function<std::string(double)> text_of_time, text_of_part;
  std::vector<AreaPanel> panels;  // at least one
};

// Returns an RGB picture.
cv::Mat draw_area_chart(const AreaChart& chart);

}  // namespace headroom::chart
