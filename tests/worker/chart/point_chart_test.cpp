#include "worker/chart/line_chart.h"

#include <gtest/gtest.h>

namespace headroom::chart {
namespace {

TEST(PointChart, PointsHaveTheirColoursAndOrder) {
  PointChart chart;
  const auto text = [](double) { return std::string("1"); };
  chart.x = {"bytes", 1, text};
  chart.y = {"time", 2, text};
  chart.points = {{0.2, 1.0, "left", 1}, {0.9, 1.8, "right", 2}};
  const cv::Mat picture = draw_point_chart(chart);
  const auto centre_of = [&](size_t colour) {
    const cv::Scalar wanted = chart_colour(colour);
    cv::Point2d sum;
    int found = 0;
    for (int y = 0; y < picture.rows; ++y) {
      for (int x = 0; x < picture.cols; ++x) {
        const auto pixel = picture.at<cv::Vec3b>(y, x);
        if (pixel[0] != wanted[0] || pixel[1] != wanted[1] ||
            pixel[2] != wanted[2])
          continue;
        sum += cv::Point2d(x, y);
        ++found;
      }
    }
    EXPECT_GT(found, 20) << colour;
    return sum / std::max(found, 1);
  };
  EXPECT_LT(centre_of(1).x, centre_of(2).x);
  EXPECT_GT(centre_of(1).y, centre_of(2).y) << "up is more";
}

}  // namespace
}  // namespace headroom::chart
