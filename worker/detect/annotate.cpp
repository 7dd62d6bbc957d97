#include "worker/detect/annotate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <opencv2/imgproc.hpp>

#include "worker/chart/palette.h"

namespace headroom::detect {
namespace {

constexpr int kFont = cv::FONT_HERSHEY_SIMPLEX;

std::string label_of(const metrics::Detection& detection,
                     const std::vector<std::string>& class_names,
                     bool with_confidence) {
  std::string text = class_names.at(static_cast<size_t>(detection.class_index));
  if (with_confidence) {
    char number[16];
    std::snprintf(number, sizeof number, " %.2f", detection.confidence);
    text += number;
  }
  return text;
}

// Above the box, or inside where there is no room above.
void draw_label(cv::Mat& pixels, const std::string& text, cv::Point corner,
                const cv::Scalar& colour, int line_width) {
  const double scale = line_width / 3.0;
  const int stroke = std::max(1, line_width - 1);
  int baseline = 0;
  const cv::Size size = cv::getTextSize(text, kFont, scale, stroke, &baseline);
  const int height = size.height + baseline + 2;
  const int top = corner.y >= height ? corner.y - height : corner.y;
  cv::rectangle(pixels, {corner.x, top}, {corner.x + size.width, top + height},
                colour, cv::FILLED, cv::LINE_AA);
  cv::putText(pixels, text, {corner.x, top + size.height + 1}, kFont, scale,
              chart::ink_on(colour), stroke, cv::LINE_AA);
}

}  // namespace

void annotate(cv::Mat& pixels,
              const std::vector<metrics::Detection>& detections,
              const std::vector<std::string>& class_names,
              const AnnotateOptions& options) {
  const int width =
      options.line_width > 0
          ? options.line_width
          : std::max(2, static_cast<int>(std::lround(
                            (pixels.rows + pixels.cols) / 2.0 * 0.003)));
  // The most certain is drawn last, on top.
  for (auto one = detections.rbegin(); one != detections.rend(); ++one) {
    const cv::Scalar colour =
        chart::chart_colour(static_cast<size_t>(one->class_index) + 1);
    const auto at = [](float x, float y) {
      return cv::Point(static_cast<int>(x), static_cast<int>(y));
    };
    const cv::Point corner = at(one->box.x1, one->box.y1);
    cv::rectangle(pixels, corner, at(one->box.x2, one->box.y2), colour, width,
                  cv::LINE_AA);
    if (options.labels) {
      draw_label(pixels, label_of(*one, class_names, options.confidences),
                 corner, colour, width);
    }
  }
}

}  // namespace headroom::detect
