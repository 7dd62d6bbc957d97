#include "worker/chart/area_chart.h"

#include <gtest/gtest.h>

#include "worker/chart/chart_frame.h"

namespace headroom::chart {
namespace {

AreaChart chart_of(std::vector<AreaPanel> panels) {
  AreaChart chart;
  chart.title = "title";
  chart.time_title = "time";
  chart.part_names = {"a", "b"};
  chart.text_of_time = [](double) { return std::string("1"); };
  chart.text_of_part = chart.text_of_time;
  chart.panels = std::move(panels);
  return chart;
}

// Pixels of a part's colour in rows [from, to) and columns below `right`.
int count(const cv::Mat& picture, size_t part, int from, int to,
          int right = 1 << 20) {
  const cv::Scalar colour = chart_colour(part);
  int found = 0;
  for (int y = from; y < to; ++y) {
    for (int x = 0; x < std::min(right, picture.cols); ++x) {
      const auto pixel = picture.at<cv::Vec3b>(y, x);
      found += pixel[0] == colour[0] && pixel[1] == colour[1] &&
               pixel[2] == colour[2];
    }
  }
  return found;
}

constexpr int kHead = 60;  // the legend

TEST(AreaChart, AreasAreAsLargeAsTheirParts) {
  const cv::Mat picture =
      draw_area_chart(chart_of({{"p", {{0, {1, 3}}, {1, {1, 3}}}, {}}}));
  const double first = count(picture, 0, kHead, picture.rows);
  const double second = count(picture, 1, kHead, picture.rows);
  EXPECT_GT(first, 50'000);
  EXPECT_NEAR(second / first, 3, 0.1);
}

TEST(AreaChart, APeakBetweenColumnsIsSeen) {
  std::vector<AreaPanel::Sample> samples;
  for (int i = 0; i < 100'000; ++i) {
    samples.push_back({i * 1e-5, {1, i == 50'000 ? 9.0 : 0.0}});
  }
  const cv::Mat picture = draw_area_chart(chart_of({{"p", samples, {}}}));
  EXPECT_GT(count(picture, 1, kHead, picture.rows), 100) << "one column";
}

TEST(AreaChart, PanelsAreBelowEachOtherOnOneScale) {
  const cv::Mat one = draw_area_chart(chart_of({{"p", {{0, {4, 0}}}, {}}}));
  const cv::Mat two =
      draw_area_chart(chart_of({{"p", {{0, {4, 0}}, {1, {4, 0}}}, {}},
                                {"q", {{0, {1, 0}}, {1, {1, 0}}}, {}}}));
  const int middle = one.rows;
  ASSERT_GT(two.rows, middle);
  const double upper = count(two, 0, kHead, middle);
  const double lower = count(two, 0, middle, two.rows);
  EXPECT_NEAR(upper / lower, 4, 0.2);
}

TEST(AreaChart, WithoutSamplesThereAreAxesOnly) {
  const cv::Mat picture =
      draw_area_chart(chart_of({{"p", {}, {{0, "begin"}, {1, ""}}}}));
  EXPECT_EQ(count(picture, 0, kHead, picture.rows), 0);
}

}  // namespace
}  // namespace headroom::chart
