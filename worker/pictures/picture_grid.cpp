#include "worker/pictures/picture_grid.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>

#include "parallel/base/check.h"
#include "worker/chart/chart_frame.h"
#include "worker/detect/annotate.h"

namespace headroom::pictures {
namespace {

constexpr double kLongestSide = 1920;                      // pixels
constexpr double kShortestCell = 320, kLongestCell = 960;  // its longer side
constexpr size_t kTextLetters = 40;

cv::Size cell_size(int columns, int64_t height, int64_t width) {
  const auto longest = static_cast<double>(std::max(height, width));
  const double wanted = std::clamp(
      longest, kShortestCell, std::min(kLongestCell, kLongestSide / columns));
  const auto scaled = [&](int64_t side) {
    return std::max(
        1, static_cast<int>(static_cast<double>(side) * wanted / longest));
  };
  return {scaled(width), scaled(height)};
}

}  // namespace

PictureGrid::PictureGrid(int64_t count, int64_t image_height,
                         int64_t image_width) {
  HEADROOM_CHECK(count > 0 && count <= kMostPictured,
                 std::to_string(count) + " images of a picture");
  columns_ = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(count))));
  cell_ = cell_size(columns_, image_height, image_width);
  const int rows = (static_cast<int>(count) + columns_ - 1) / columns_;
  picture_ = cv::Mat(rows * cell_.height, columns_ * cell_.width, CV_8UC3,
                     cv::Scalar(255, 255, 255));
}

void PictureGrid::add(const cv::Mat& pixels, const std::string& text,
                      const Boxes& boxes,
                      const std::vector<std::string>& class_names) {
  HEADROOM_CHECK(pixels.size() == cell_, "an image of another size");
  const cv::Rect place(next_ % columns_ * cell_.width,
                       next_ / columns_ * cell_.height, cell_.width,
                       cell_.height);
  HEADROOM_CHECK(place.y + place.height <= picture_.rows, "no room is left");
  ++next_;
  cv::Mat cell = picture_(place);
  pixels.copyTo(cell);
  detect::AnnotateOptions options;
  options.confidences = boxes.confidences;
  options.line_width = 1;  // and small letters: boxes may be many
  detect::annotate(cell, boxes.boxes, class_names, options);
  const std::string shown = chart::shortened(text, kTextLetters);
  const cv::Size size = chart::text_size(shown, 0.4);
  cv::rectangle(cell, {0, 0, size.width + 10, size.height + 10},
                cv::Scalar(255, 255, 255), cv::FILLED);
  chart::draw_text(cell, shown, {5, size.height + 5}, 0.4);
  cv::rectangle(picture_, place, cv::Scalar(255, 255, 255), 2);
}

}  // namespace headroom::pictures
