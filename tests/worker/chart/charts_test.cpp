#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "worker/chart/area_chart.h"
#include "worker/chart/chart_frame.h"
#include "worker/chart/line_chart.h"
#include "worker/chart/matrix_chart.h"

namespace headroom::chart {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

std::string one(double) { return "1"; }

// The number of pixels of one colour, and the rectangle around them.
struct Found {
  int count = 0;
  cv::Rect around;
};
Found find(const cv::Mat& picture, const cv::Scalar& colour) {
  Found found;
  for (int y = 0; y < picture.rows; ++y) {
    for (int x = 0; x < picture.cols; ++x) {
      const auto pixel = picture.at<cv::Vec3b>(y, x);
      if (pixel[0] != colour[0] || pixel[1] != colour[1] ||
          pixel[2] != colour[2]) {
        continue;
      }
      const cv::Rect here(x, y, 1, 1);
      found.around = found.count++ == 0 ? here : found.around | here;
    }
  }
  return found;
}

LineChart chart_of(std::vector<std::pair<double, double>> points) {
  LineChart chart;
  chart.x = {"x", 1, one};
  chart.y = {"y", 1, one};
  chart.lines.push_back({"", {0, 0, 255}, 3, false, std::move(points)});
  return chart;
}

TEST(LineChart, ALineGoesFromPointToPointAndUpIsMore) {
  const cv::Size size(600, 400);
  const Found rising =
      find(draw_line_chart(chart_of({{0, 0}, {0.5, 0.5}}), size), {0, 0, 255});
  const Found whole =
      find(draw_line_chart(chart_of({{0, 0}, {1, 1}}), size), {0, 0, 255});
  EXPECT_GT(rising.count, 100);
  EXPECT_NEAR(rising.around.width * 2, whole.around.width, 8);
  EXPECT_NEAR(rising.around.height * 2, whole.around.height, 8);
  EXPECT_GT(rising.around.y, whole.around.y + 50) << "half as high";
}

TEST(LineChart, PointsThatAreNoNumbersAreGaps) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const cv::Size size(600, 400);
  const Found whole =
      find(draw_line_chart(chart_of({{0, .5}, {.5, .5}, {1, .5}}), size),
           {0, 0, 255});
  const Found cut = find(
      draw_line_chart(
          chart_of({{0, .5}, {.4, .5}, {.5, nan}, {.6, .5}, {1, .5}}), size),
      {0, 0, 255});
  EXPECT_LT(cut.count, whole.count * 9 / 10);
  EXPECT_GT(cut.count, whole.count / 2);
  EXPECT_EQ(
      find(draw_line_chart(chart_of({{0, infinity}}), size), {0, 0, 255}).count,
      0);
  EXPECT_GT(
      find(draw_line_chart(chart_of({{.5, .5}}), size), {0, 0, 255}).count, 10)
      << "a single point is seen";
}

TEST(LineChart, NamesMakeALegendBesideTheAxes) {
  LineChart chart = chart_of({{0, 0}, {1, 1}});
  const cv::Size size(900, 400);
  const int without =
      find(draw_line_chart(chart, size), {0, 0, 255}).around.width;
  chart.lines[0].name = "a class";
  EXPECT_LT(find(draw_line_chart(chart, size), {0, 0, 255}).around.x, 120);
  cv::Mat picture = draw_line_chart(chart, size);
  const cv::Rect left(0, 0, 640, 400);
  EXPECT_LT(find(picture(left), {0, 0, 255}).around.width, without - 200);
  EXPECT_GT(find(picture(cv::Rect(640, 0, 260, 400)), {0, 0, 255}).count, 20);
}

TEST(MatrixChart, ValuesAreShadesInTheirPlaces) {
  MatrixChart chart;
  chart.names = {"a", "b"};
  chart.values = {{1, 0}, {0, 0.001}};
  const cv::Mat picture = draw_matrix_chart(chart);
  const Found darkest = find(picture, {8, 48, 107});
  // The darkest shade fills a quarter of the square. It is also at the end of
  // the scale beside the square.
  EXPECT_GT(darkest.count, 400 * 400);
  EXPECT_LT(darkest.around.x, 250);
  EXPECT_LT(darkest.around.y, 100);
  EXPECT_GT(find(picture, {247, 251, 255}).count, 3 * 440 * 440)
      << "what is below least_shown is as empty";
}

TEST(MatrixChart, ManyClassesStillFit) {
  MatrixChart chart;
  for (int i = 0; i < 1001; ++i) {
    chart.names.push_back("class " + std::to_string(i));
    chart.values.emplace_back(1001, i == 500 ? 1.0 : 0.0);
  }
  const cv::Mat picture = draw_matrix_chart(chart);
  EXPECT_LT(picture.total(), 2u << 20);
  EXPECT_GT(find(picture, {8, 48, 107}).around.width, 1000);
}

cv::Mat area_chart(std::vector<AreaPanel> panels) {
  return draw_area_chart({.title = "title",
                          .time_title = "time",
                          .part_names = {"a", "b"},
                          .text_of_time = one,
                          .text_of_part = one,
                          .panels = std::move(panels)});
}

// Counts the pixels of a part's colour from row `from` to row `to`.
int count(const cv::Mat& picture, size_t part, int from, int to) {
  return find(picture.rowRange(from, to), chart_colour(part)).count;
}

constexpr int kHead = 60;  // the legend

TEST(AreaChart, AreasAreAsLargeAsTheirParts) {
  const cv::Mat picture = area_chart({{"p", {{0, {1, 3}}, {1, {1, 3}}}, {}}});
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
  const cv::Mat picture = area_chart({{"p", samples, {}}});
  EXPECT_GT(count(picture, 1, kHead, picture.rows), 100) << "one column";
}

TEST(AreaChart, PanelsAreBelowEachOtherOnOneScale) {
  const cv::Mat first = area_chart({{"p", {{0, {4, 0}}}, {}}});
  const cv::Mat two = area_chart({{"p", {{0, {4, 0}}, {1, {4, 0}}}, {}},
                                  {"q", {{0, {1, 0}}, {1, {1, 0}}}, {}}});
  const int middle = first.rows;
  ASSERT_GT(two.rows, middle);
  const double upper = count(two, 0, kHead, middle);
  const double lower = count(two, 0, middle, two.rows);
  EXPECT_NEAR(upper / lower, 4, 0.2);
}

TEST(AreaChart, WithoutSamplesThereAreAxesOnly) {
  const cv::Mat picture = area_chart({{"p", {}, {{0, "begin"}, {1, ""}}}});
  EXPECT_EQ(count(picture, 0, kHead, picture.rows), 0);
}

TEST(ChartFrame, TicksAreRoundNumbers) {
  EXPECT_THAT(chart_ticks(0, 1),
              ElementsAre(0, DoubleEq(0.2), DoubleEq(0.4), DoubleEq(0.2 * 3),
                          DoubleEq(0.8), 1));
  EXPECT_THAT(chart_ticks(0, 30), ElementsAre(0, 10, 20, 30));
  EXPECT_THAT(chart_ticks(0, 29), ElementsAre(0, 5, 10, 15, 20, 25));
  EXPECT_THAT(chart_ticks(0, 700), ElementsAre(0, 200, 400, 600));
}

TEST(ChartFrame, TicksOfAPartOfAnAxisAreRoundNumbersToo) {
  EXPECT_THAT(chart_ticks(41, 59), ElementsAre(45, 50, 55));
  EXPECT_THAT(chart_ticks(-3, 3), ElementsAre(-2, 0, 2));
}

TEST(ChartFrame, TicksAreFewWhateverTheEnd) {
  for (double end = 1e-7; end < 1e12; end *= 1.07) {
    const size_t intervals = chart_ticks(0, end).size() - 1;
    EXPECT_GE(intervals, 3u) << end;
    EXPECT_LE(intervals, 8u) << end;
  }
}

TEST(ChartFrame, PutsNumbersIntoPlace) {
  cv::Mat picture(300, 400, CV_8UC3, cv::Scalar(255, 255, 255));
  const ChartFrame frame(picture, {0, 0, 400, 300}, {"x", 10, one},
                         {"y", 4, one});
  const cv::Rect inside = frame.inside();
  EXPECT_EQ(frame.at(0, 0), cv::Point(inside.x, inside.y + inside.height));
  EXPECT_EQ(frame.at(10, 4), cv::Point(inside.x + inside.width, inside.y));
  EXPECT_EQ(frame.at(5, 0).x, inside.x + inside.width / 2);
  const ChartFrame part(picture, {0, 0, 400, 300}, {"x", 10, one, 6},
                        {"y", 4, one, -4});
  EXPECT_EQ(part.at(6, -4), frame.at(0, 0));
  EXPECT_EQ(part.at(8, 0).x, frame.at(5, 0).x);
}

}  // namespace
}  // namespace headroom::chart
