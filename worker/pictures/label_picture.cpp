#include "worker/pictures/label_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <opencv2/imgproc.hpp>
#include <string>
#include <vector>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/chart/chart_frame.h"
#include "worker/chart/chart_text.h"

namespace headroom::pictures {
namespace {

constexpr int kPanel = 720, kHead = 40;  // pixels
constexpr int64_t kMostOutlines = 1000;
constexpr int kBins = 60;  // bins along each axis of a density
constexpr size_t kMostNamedBars = 30;

template <typename Use>
void for_each_label(const labels::Dataset& dataset, const Use& use) {
  for (int64_t i = 0; i < dataset.size(); ++i) {
    for (const labels::BoxLabel& label : dataset.labels(i)) use(label);
  }
}

void draw_class_bars(cv::Mat& picture, cv::Rect place,
                     const labels::Dataset& dataset) {
  const std::vector<std::string>& names = dataset.class_names();
  std::vector<int64_t> counts(names.size());
  for_each_label(dataset, [&](const labels::BoxLabel& label) {
    ++counts[static_cast<size_t>(label.class_index)];
  });
  const double most = static_cast<double>(std::max<int64_t>(
      1, counts.empty() ? 1 : *std::max_element(counts.begin(), counts.end())));
  const auto num_classes =
      static_cast<double>(std::max<size_t>(1, names.size()));
  const bool is_named = names.size() <= kMostNamedBars;
  chart::ChartFrame frame(
      picture, place,
      {is_named ? "" : "class", num_classes,
       [&](double tick) { return is_named ? "" : significant_text(tick, 6); }},
      {"boxes", 1.08 * most,
       [](double tick) { return significant_text(tick, 6); }});
  frame.draw_grid();
  for (size_t c = 0; c < counts.size(); ++c) {
    const auto left = static_cast<double>(c);
    const cv::Point top = frame.at(left + 0.1, static_cast<double>(counts[c]));
    const cv::Point foot = frame.at(left + 0.9, 0);
    cv::rectangle(picture, top, {std::max(top.x, foot.x), foot.y},
                  chart::chart_colour(c + 1), cv::FILLED);
    if (!is_named) continue;
    const double scale = names.size() > 12 ? 0.35 : 0.42;
    const std::string name =
        chart::shortened(names[c], std::max<size_t>(4, 90 / names.size()));
    const cv::Size size = chart::text_size(name, scale);
    chart::draw_text(picture, name,
                     {(top.x + foot.x - size.width) / 2,
                      foot.y + (c % 2 == 0 || names.size() <= 8 ? 18 : 34)},
                     scale);
    const std::string count = std::to_string(counts[c]);
    chart::draw_text(
        picture, count,
        {(top.x + foot.x - chart::text_size(count, scale).width) / 2,
         top.y - 5},
        scale);
  }
  frame.draw_axes();
}

// Draws boxes around a common centre: all boxes, or an even selection of at
// most kMostOutlines.
void draw_outlines(cv::Mat& picture, cv::Rect place,
                   const labels::Dataset& dataset) {
  chart::draw_text(picture, "box shapes, in fractions of the image",
                   {place.x + 90, place.y + 18});
  const cv::Rect inside(place.x + 90, place.y + 30, place.width - 110,
                        place.height - 75);
  cv::rectangle(picture, inside, chart::kInk);
  const int64_t every =
      std::max<int64_t>(1, divided_up(dataset.num_labels(), kMostOutlines));
  int64_t seen = 0;
  for_each_label(dataset, [&](const labels::BoxLabel& label) {
    if (seen++ % every != 0) return;
    const int w = static_cast<int>(label.w * static_cast<float>(inside.width));
    const int h = static_cast<int>(label.h * static_cast<float>(inside.height));
    cv::rectangle(
        picture,
        {inside.x + (inside.width - w) / 2, inside.y + (inside.height - h) / 2,
         w, h},
        chart::chart_colour(static_cast<size_t>(label.class_index) + 1), 1,
        cv::LINE_AA);
  });
}

struct Density {
  std::string x_title, y_title;
  std::function<std::pair<float, float>(const labels::BoxLabel&)> point;
  bool is_upside_down = false;  // y grows downwards, as in an image
};

// Draws a cell darker if it has more boxes: the shade follows the square root
// of their number.
void draw_density(cv::Mat& picture, cv::Rect place, const Density& density,
                  const labels::Dataset& dataset) {
  const auto text = [](double value) { return fixed_text(value, 1); };
  const auto y_text = [&](double value) {
    return text(density.is_upside_down ? 1 - value : value);
  };
  chart::ChartFrame frame(picture, place, {density.x_title, 1, text},
                          {density.y_title, 1, y_text});
  cv::Mat counts = cv::Mat::zeros(kBins, kBins, CV_32SC1);
  const auto bin_of = [](float value) {
    return std::clamp(static_cast<int>(value * kBins), 0, kBins - 1);
  };
  int most = 1;
  for_each_label(dataset, [&](const labels::BoxLabel& label) {
    const auto [x, y] = density.point(label);
    int& count = counts.at<int>(bin_of(y), bin_of(x));
    most = std::max(most, ++count);
  });
  for (int y = 0; y < kBins; ++y) {
    for (int x = 0; x < kBins; ++x) {
      const int count = counts.at<int>(y, x);
      if (count == 0) continue;
      const int up = density.is_upside_down ? kBins - 1 - y : y;
      const auto at = [&](int column, int row) {
        return frame.at(static_cast<double>(column) / kBins,
                        static_cast<double>(row) / kBins);
      };
      const double v = std::sqrt(static_cast<double>(count) / most);
      cv::rectangle(picture, at(x, up + 1), at(x + 1, up),
                    chart::density_shade(v), cv::FILLED);
    }
  }
  frame.draw_axes();
}

struct BoxSide {
  const char* name;
  float labels::BoxLabel::*value;
};
constexpr std::array<BoxSide, 4> kSides = {{{"x", &labels::BoxLabel::cx},
                                            {"y", &labels::BoxLabel::cy},
                                            {"width", &labels::BoxLabel::w},
                                            {"height", &labels::BoxLabel::h}}};

void draw_histogram(cv::Mat& picture, cv::Rect place, const BoxSide& side,
                    const labels::Dataset& dataset) {
  std::array<int, kBins> counts{};
  for_each_label(dataset, [&](const labels::BoxLabel& label) {
    ++counts[static_cast<size_t>(
        std::clamp(static_cast<int>(label.*side.value * kBins), 0, kBins - 1))];
  });
  const int most = std::max(1, *std::max_element(counts.begin(), counts.end()));
  const auto text = [](double) { return std::string(); };
  chart::ChartFrame frame(picture, place, {side.name, 1, text},
                          {"", 1.08 * most, text});
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const auto left = static_cast<double>(i);
    cv::rectangle(picture, frame.at(left / kBins, counts[i]),
                  frame.at((left + 1) / kBins, 0), chart::density_shade(1),
                  cv::FILLED);
  }
  frame.draw_axes();
}

// Draws the density of each pair of box statistics, and on the diagonal the
// distribution of each one.
void draw_correlogram(cv::Mat& picture, cv::Rect place,
                      const labels::Dataset& dataset) {
  const int cell = place.width / static_cast<int>(kSides.size());
  for (size_t row = 0; row < kSides.size(); ++row) {
    for (size_t column = 0; column <= row; ++column) {
      const cv::Rect here(place.x + static_cast<int>(column) * cell,
                          place.y + static_cast<int>(row) * cell, cell, cell);
      const BoxSide &across = kSides[column], &up = kSides[row];
      if (row == column) {
        draw_histogram(picture, here, across, dataset);
        continue;
      }
      draw_density(picture, here,
                   {across.name, up.name,
                    [&](const labels::BoxLabel& box) {
                      return std::pair(box.*across.value, box.*up.value);
                    }},
                   dataset);
    }
  }
}

}  // namespace

cv::Mat draw_labels(const labels::Dataset& dataset) {
  cv::Mat picture(kHead + 4 * kPanel, 2 * kPanel, CV_8UC3, chart::kPaper);
  chart::draw_text(picture,
                   counted(dataset.num_labels(), "box") + " in " +
                       counted(dataset.size(), "image"),
                   {12, 26}, 0.6);
  const auto panel = [](int column, int row) {
    return cv::Rect(column * kPanel, kHead + row * kPanel, kPanel, kPanel);
  };
  draw_class_bars(picture, panel(0, 0), dataset);
  draw_outlines(picture, panel(1, 0), dataset);
  draw_density(
      picture, panel(0, 1),
      {"x of the centre", "y of the centre",
       [](const labels::BoxLabel& box) { return std::pair(box.cx, box.cy); },
       true},
      dataset);
  draw_density(
      picture, panel(1, 1),
      {"width", "height",
       [](const labels::BoxLabel& box) { return std::pair(box.w, box.h); },
       false},
      dataset);
  draw_correlogram(picture, {0, kHead + 2 * kPanel, 2 * kPanel, 2 * kPanel},
                   dataset);
  return picture;
}

}  // namespace headroom::pictures
