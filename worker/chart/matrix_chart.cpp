#include "worker/chart/matrix_chart.h"

#include <algorithm>
#include <opencv2/imgproc.hpp>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/chart/chart_text.h"

namespace headroom::chart {
namespace {

constexpr int kMatrixLeft = 190, kMatrixTop = 50, kMatrixBottom = 190,
              kMatrixRight = 110;  // pixels
constexpr int kSide = 900;         // wanted size of the matrix
constexpr int kLeastCellForNames = 9, kLeastCellForNumbers = 27;
constexpr size_t kNameLetters = 18;

// Draws text upwards, so that it ends at `end`.
void draw_upward(cv::Mat& picture, const std::string& text, cv::Point end,
                 double scale) {
  int baseline = 0;
  const cv::Size size = text_size(text, scale, &baseline);
  cv::Mat line(size.height + baseline + 4, size.width + 4, CV_8UC3, kPaper);
  draw_text(line, text, {2, size.height + 1}, scale);
  cv::Mat turned;
  cv::rotate(line, turned, cv::ROTATE_90_COUNTERCLOCKWISE);
  const cv::Rect whole(0, 0, picture.cols, picture.rows);
  const cv::Rect wanted(end.x - turned.cols / 2, end.y, turned.cols,
                        turned.rows);
  const cv::Rect place = wanted & whole;
  if (place.empty()) return;
  turned(place - wanted.tl()).copyTo(picture(place));
}

void draw_number(cv::Mat& picture, double value, cv::Rect cell) {
  const std::string text = fixed_text(value, 2);
  const double scale = std::min(0.6, cell.width / 80.0);
  const cv::Size size = text_size(text, scale);
  const cv::Point left(cell.x + (cell.width - size.width) / 2,
                       cell.y + (cell.height + size.height) / 2);
  draw_text(picture, text, left, scale, value > 0.5 ? kPaper : kInk);
}

void draw_scale(cv::Mat& picture, cv::Rect inside) {
  const cv::Rect bar(inside.x + inside.width + 24, inside.y, 20, inside.height);
  for (int y = 0; y < bar.height; ++y) {
    const double value = 1 - static_cast<double>(y) / bar.height;
    cv::line(picture, {bar.x, bar.y + y}, {bar.x + bar.width - 1, bar.y + y},
             value_shade(value));
  }
  cv::rectangle(picture, bar, kInk);
  for (int i = 0; i <= 5; ++i) {
    draw_text(
        picture, fixed_text(i / 5.0, 1),
        {bar.x + bar.width + 6, bar.y + bar.height - bar.height * i / 5 + 4});
  }
}

void draw_names(cv::Mat& picture, const MatrixChart& chart, cv::Rect inside,
                int cell) {
  if (cell < kLeastCellForNames) return;
  const double scale = std::clamp(cell / 40.0, 0.28, 0.5);
  for (size_t i = 0; i < chart.names.size(); ++i) {
    const std::string name = shortened(chart.names[i], kNameLetters);
    const int middle = static_cast<int>(i) * cell + cell / 2;
    const cv::Size size = text_size(name, scale);
    draw_text(picture, name,
              {inside.x - 8 - size.width, inside.y + middle + size.height / 2},
              scale);
    draw_upward(picture, name,
                {inside.x + middle, inside.y + inside.height + 8}, scale);
  }
}

}  // namespace

cv::Mat draw_matrix_chart(const MatrixChart& chart) {
  const int count = static_cast<int>(chart.values.size());
  HEADROOM_CHECK(count > 0 && chart.names.size() == chart.values.size(),
                 "a matrix without names");
  // Each value gets at least one pixel.
  const int cell = std::max(1, kSide / count);
  const cv::Rect inside(kMatrixLeft, kMatrixTop, cell * count, cell * count);
  cv::Mat picture(kMatrixTop + inside.height + kMatrixBottom,
                  kMatrixLeft + inside.width + kMatrixRight, CV_8UC3, kPaper);
  for (int r = 0; r < count; ++r) {
    const auto& row = chart.values[static_cast<size_t>(r)];
    HEADROOM_CHECK(static_cast<int>(row.size()) == count, "a square");
    for (int c = 0; c < count; ++c) {
      const double value = row[static_cast<size_t>(c)];
      const cv::Rect place(inside.x + c * cell, inside.y + r * cell, cell,
                           cell);
      const bool is_shown = value >= chart.least_shown;
      cv::rectangle(picture, place, value_shade(is_shown ? value : 0),
                    cv::FILLED);
      if (is_shown && cell >= kLeastCellForNumbers) {
        draw_number(picture, value, place);
      }
    }
  }
  cv::rectangle(picture, inside, kInk);
  draw_names(picture, chart, inside, cell);
  draw_scale(picture, inside);
  draw_text(picture, chart.title, {12, 28}, 0.6);
  const cv::Size below = text_size(chart.column_title, 0.6);
  draw_text(picture, chart.column_title,
            {inside.x + (inside.width - below.width) / 2, picture.rows - 14},
            0.6);
  const cv::Size beside = text_size(chart.row_title, 0.6);
  draw_upward(picture, chart.row_title,
              {16, inside.y + (inside.height - beside.width) / 2}, 0.6);
  return picture;
}

}  // namespace headroom::chart
