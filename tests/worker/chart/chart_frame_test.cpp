#include "worker/chart/chart_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::chart {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

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
  const auto text = [](double) { return std::string("t"); };
  const ChartFrame frame(picture, {0, 0, 400, 300}, {"x", 10, text},
                         {"y", 4, text});
  const cv::Rect inside = frame.inside();
  EXPECT_EQ(frame.at(0, 0), cv::Point(inside.x, inside.y + inside.height));
  EXPECT_EQ(frame.at(10, 4), cv::Point(inside.x + inside.width, inside.y));
  EXPECT_EQ(frame.at(5, 0).x, inside.x + inside.width / 2);
  const ChartFrame part(picture, {0, 0, 400, 300}, {"x", 10, text, 6},
                        {"y", 4, text, -4});
  EXPECT_EQ(part.at(6, -4), frame.at(0, 0));
  EXPECT_EQ(part.at(8, 0).x, frame.at(5, 0).x);
}

}  // namespace
}  // namespace headroom::chart
