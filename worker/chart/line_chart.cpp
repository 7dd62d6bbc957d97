#include "worker/chart/line_chart.h"
#include "worker/chart/chart_text.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>

namespace headroom::chart {
namespace {

constexpr int kLineHead = 34, kLegendWidth = 250,
              kLineLegendStep = 20;  // pixels
constexpr size_t kLegendLetters = 26;

bool is_drawn(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

void draw_line(cv::Mat& picture, const ChartFrame& frame,
               const LineChart::Line& line) {
  for (size_t i = 0; i < line.points.size(); ++i) {
    if (!is_drawn(line.points[i])) continue;
    const cv::Point here =
        frame.at(line.points[i].first, line.points[i].second);
    const bool is_alone = line.points.size() == 1;
    if (line.dotted || is_alone) {
      cv::circle(picture, here, line.width + 1, line.colour, cv::FILLED,
                 cv::LINE_AA);
    }
    if (line.dotted || i == 0 || !is_drawn(line.points[i - 1])) continue;
    const auto& before = line.points[i - 1];
    cv::line(picture, frame.at(before.first, before.second), here, line.colour,
             line.width, cv::LINE_AA);
  }
}

// Draws as many names as fit.
void draw_legend(cv::Mat& picture, const LineChart& chart, cv::Rect place) {
  int y = place.y + 20;
  for (const LineChart::Line& line : chart.lines) {
    if (line.name.empty()) continue;
    if (y + kLineLegendStep > place.y + place.height) return;
    cv::line(picture, {place.x, y - 4}, {place.x + 22, y - 4}, line.colour,
             std::max(line.width, 2), cv::LINE_AA);
    draw_text(picture, shortened(line.name, kLegendLetters), {place.x + 30, y},
              0.42);
    y += kLineLegendStep;
  }
}

}  // namespace

void draw_line_chart(const LineChart& chart, cv::Mat& picture, cv::Rect place) {
  cv::rectangle(picture, place, kPaper, cv::FILLED);
  draw_text(picture, chart.title, {place.x + 12, place.y + 22}, 0.55);
  const bool has_legend =
      std::any_of(chart.lines.begin(), chart.lines.end(),
                  [](const auto& line) { return !line.name.empty(); });
  cv::Rect axes = place;
  axes.y += kLineHead;
  axes.height -= kLineHead;
  if (has_legend) axes.width -= kLegendWidth;
  ChartFrame frame(picture, axes, chart.x, chart.y);
  frame.draw_grid();
  for (const LineChart::Line& line : chart.lines) {
    draw_line(picture, frame, line);
  }
  frame.draw_axes();
  if (!has_legend) return;
  const cv::Rect inside = frame.inside();
  draw_legend(
      picture, chart,
      {inside.x + inside.width + 14, inside.y, kLegendWidth, inside.height});
}

cv::Mat draw_line_chart(const LineChart& chart, cv::Size size) {
  cv::Mat picture(size, CV_8UC3);
  draw_line_chart(chart, picture, {{0, 0}, size});
  return picture;
}

}  // namespace headroom::chart
