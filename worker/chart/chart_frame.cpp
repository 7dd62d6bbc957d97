#include "worker/chart/chart_frame.h"

#include <cmath>
#include <opencv2/imgproc.hpp>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/chart/chart_text.h"
#include "worker/chart/palette.h"

namespace headroom::chart {
namespace {

constexpr int kLeft = 90, kRight = 20, kTop = 30, kBottom = 45;  // pixels

cv::Rect without_margins(const cv::Rect& place) {
  return {place.x + kLeft, place.y + kTop, place.width - kLeft - kRight,
          place.height - kTop - kBottom};
}

}  // namespace

std::vector<double> chart_ticks(double begin, double end) {
  const double length = end - begin;
  HEADROOM_CHECK(length > 0, cat("an axis from ", begin, " to ", end));
  const double power = std::pow(10, std::floor(std::log10(length / 4)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (length / (factor * power) >= 3) step = factor * power;
  }
  const double rounding = 1e-9 * length;
  std::vector<double> ticks;
  for (double i = std::ceil((begin - rounding) / step);
       i * step <= end + rounding; ++i) {
    ticks.push_back(i * step + 0.0);  // avoids -0
  }
  return ticks;
}

ChartFrame::ChartFrame(cv::Mat& picture, cv::Rect place, ChartAxis x,
                       ChartAxis y)
    : picture_(picture),
      x_(std::move(x)),
      y_(std::move(y)),
      inside_(without_margins(place)) {
  HEADROOM_CHECK(inside_.width > 0 && inside_.height > 0, "no room to draw");
}

cv::Point ChartFrame::at(double x, double y) const {
  const auto pixels = [](const ChartAxis& axis, double value, int length) {
    return static_cast<int>(
        std::lround((value - axis.begin) / (axis.end - axis.begin) * length));
  };
  return {inside_.x + pixels(x_, x, inside_.width),
          inside_.y + inside_.height - pixels(y_, y, inside_.height)};
}

void ChartFrame::draw_grid() {
  for (const double tick : chart_ticks(x_.begin, x_.end)) {
    cv::line(picture_, at(tick, y_.begin), at(tick, y_.end), kGrid);
  }
  for (const double tick : chart_ticks(y_.begin, y_.end)) {
    cv::line(picture_, at(x_.begin, tick), at(x_.end, tick), kGrid);
  }
}

void ChartFrame::draw_axes() {
  cv::rectangle(picture_, inside_, kInk);
  for (const double tick : chart_ticks(x_.begin, x_.end)) {
    const std::string text = x_.text_of(tick);
    draw_text(picture_, text,
              at(tick, y_.begin) + cv::Point(-text_size(text).width / 2, 16));
  }
  for (const double tick : chart_ticks(y_.begin, y_.end)) {
    const std::string text = y_.text_of(tick);
    draw_text(picture_, text,
              at(x_.begin, tick) + cv::Point(-8 - text_size(text).width, 5));
  }
  draw_text(
      picture_, x_.title,
      {inside_.x + inside_.width / 2 - 60, inside_.y + inside_.height + 36});
  draw_text(picture_, y_.title, {inside_.x - 78, inside_.y - 12});
}

}  // namespace headroom::chart
