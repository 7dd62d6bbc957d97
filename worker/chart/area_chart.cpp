#include "worker/chart/area_chart.h"

#include <algorithm>
#include <numeric>
#include <opencv2/imgproc.hpp>

#include "worker/chart/chart_frame.h"
#include "worker/chart/chart_text.h"

namespace headroom::chart {
namespace {

constexpr int kWidth = 1280, kPanelHeight = 380, kHead = 60;  // pixels
constexpr int kLegendStep = 135;

double whole(const AreaPanel::Sample& sample) {
  return std::accumulate(sample.parts.begin(), sample.parts.end(), 0.0);
}

// The sample to draw in each column of pixels: the one with the largest sum of
// parts. nullptr before the first sample.
std::vector<const AreaPanel::Sample*> columns_of(const AreaPanel& panel,
                                                 double end, int width) {
  std::vector<const AreaPanel::Sample*> columns(static_cast<size_t>(width));
  const auto column_of = [&](double time) {
    return std::clamp(static_cast<int>(time / end * width), 0, width - 1);
  };
  for (size_t i = 0; i < panel.samples.size(); ++i) {
    const AreaPanel::Sample& sample = panel.samples[i];
    const int last = i + 1 < panel.samples.size()
                         ? column_of(panel.samples[i + 1].time)
                         : width - 1;
    for (int column = column_of(sample.time); column <= last; ++column) {
      const AreaPanel::Sample*& shown = columns[static_cast<size_t>(column)];
      if (shown == nullptr || whole(*shown) < whole(sample)) shown = &sample;
    }
  }
  return columns;
}

void draw_parts(cv::Mat& picture, const ChartFrame& frame,
                const AreaPanel& panel, double end) {
  const cv::Rect inside = frame.inside();
  const auto columns = columns_of(panel, end, inside.width);
  for (int column = 0; column < inside.width; ++column) {
    const AreaPanel::Sample* sample = columns[static_cast<size_t>(column)];
    if (sample == nullptr) continue;
    double below = 0;
    for (size_t part = 0; part < sample->parts.size(); ++part) {
      if (sample->parts[part] == 0) continue;
      const double above = below + sample->parts[part];
      const int x = inside.x + column;
      cv::line(picture, {x, frame.at(0, below).y}, {x, frame.at(0, above).y},
               chart_colour(part));
      below = above;
    }
  }
}

void draw_marks(cv::Mat& picture, const ChartFrame& frame,
                const AreaPanel& panel) {
  int free_from = 0;
  for (const AreaPanel::Mark& mark : panel.marks) {
    const cv::Point foot = frame.at(mark.time, 0);
    cv::line(picture, foot, {foot.x, frame.inside().y}, kMark);
    if (mark.name.empty() || foot.x < free_from) continue;
    draw_text(picture, mark.name, {foot.x + 3, frame.inside().y + 13}, 0.4);
    free_from = foot.x + 9 * static_cast<int>(mark.name.size());
  }
}

}  // namespace

cv::Mat draw_area_chart(const AreaChart& chart) {
  double time_end = 1e-9, whole_end = 1e-9;
  for (const AreaPanel& panel : chart.panels) {
    for (const AreaPanel::Sample& sample : panel.samples) {
      time_end = std::max(time_end, sample.time);
      whole_end = std::max(whole_end, whole(sample));
    }
    for (const AreaPanel::Mark& mark : panel.marks) {
      time_end = std::max(time_end, mark.time);
    }
  }
  const int num_panels = static_cast<int>(chart.panels.size());
  cv::Mat picture(kHead + num_panels * kPanelHeight, kWidth, CV_8UC3, kPaper);
  draw_text(picture, chart.title, {12, 22}, 0.55);
  for (size_t part = 0; part < chart.part_names.size(); ++part) {
    const cv::Point corner(12 + kLegendStep * static_cast<int>(part), 36);
    cv::rectangle(picture, {corner, cv::Size(14, 14)}, chart_colour(part),
                  cv::FILLED);
    draw_text(picture, chart.part_names[part], corner + cv::Point(20, 12));
  }
  for (int i = 0; i < num_panels; ++i) {
    const AreaPanel& panel = chart.panels[static_cast<size_t>(i)];
    ChartFrame frame(picture,
                     {0, kHead + i * kPanelHeight, kWidth, kPanelHeight},
                     {chart.time_title, time_end, chart.text_of_time},
                     {panel.title, 1.08 * whole_end, chart.text_of_part});
    frame.draw_grid();
    draw_parts(picture, frame, panel, time_end);
    draw_marks(picture, frame, panel);
    frame.draw_axes();
  }
  return picture;
}

}  // namespace headroom::chart
