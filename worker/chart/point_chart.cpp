#include "worker/chart/point_chart.h"

#include <opencv2/imgproc.hpp>

namespace headroom::chart {

cv::Mat draw_point_chart(const PointChart& chart) {
  constexpr int kWidth = 900, kHeight = 620, kHead = 40;  // pixels
  cv::Mat picture(kHead + kHeight, kWidth, CV_8UC3, cv::Scalar(255, 255, 255));
  draw_text(picture, chart.title, {12, 24}, 0.55);
  ChartFrame frame(picture, {0, kHead, kWidth, kHeight}, chart.x, chart.y);
  frame.draw_grid();
  frame.draw_axes();
  for (size_t i = 0; i < chart.points.size(); ++i) {
    const PointChart::Point& point = chart.points[i];
    const cv::Point here = frame.at(point.x, point.y);
    if (chart.joined && i + 1 < chart.points.size()) {
      const PointChart::Point& next = chart.points[i + 1];
      cv::line(picture, here, frame.at(next.x, next.y),
               cv::Scalar(150, 150, 150), 1, cv::LINE_AA);
    }
    cv::circle(picture, here, 5, chart_colour(point.colour), cv::FILLED,
               cv::LINE_AA);
    draw_text(picture, point.label, here + cv::Point(8, -8), 0.42);
  }
  return picture;
}

}  // namespace headroom::chart
