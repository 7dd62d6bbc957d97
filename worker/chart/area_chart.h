// Parts of a whole over time, stacked, one panel below the other.
//
// A column of pixels shows the moment at which the whole is largest: peaks are
// never lost between columns.
#pragma once

#include <functional>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

namespace headroom::chart {

struct AreaPanel {
  // A value holds from `time` until the next sample; times rise.
  struct Sample {
    double time = 0;
    std::vector<double> parts;  // one per name, >= 0
  };
  struct Mark {
    double time = 0;
    std::string name;  // what begins; "" ends the one before
  };
  std::string title;
  std::vector<Sample> samples;
  std::vector<Mark> marks;
};

struct AreaChart {
  std::string title, time_title;
  std::vector<std::string> part_names;
  std::function<std::string(double)> text_of_time, text_of_part;
  std::vector<AreaPanel> panels;  // one or more
};

// RGB.
cv::Mat draw_area_chart(const AreaChart& chart);

}  // namespace headroom::chart
