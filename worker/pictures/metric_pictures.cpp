#include "worker/pictures/metric_pictures.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <opencv2/imgproc.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "worker/chart/chart_text.h"
#include "worker/chart/line_chart.h"
#include "worker/chart/matrix_chart.h"

namespace headroom::pictures {
namespace {

constexpr size_t kMostNamedClasses = 20;
const cv::Size kCurveSize(1120, 760);

std::string number(double value) { return fixed_text(value, 3); }

std::string tick(double value) { return fixed_text(value, 1); }

using Curve = std::vector<double>;

struct CurveKind {
  std::string file, title, x_title, y_title;
  std::function<Curve(const metrics::ClassCurves&)> of;
  // Text beside a class's name; if nullptr, only the name is shown.
  std::function<std::string(const metrics::ClassPrecision&)> remark;
  std::function<std::string(const Curve& mean)> remark_of_mean;
};

std::vector<std::pair<double, double>> points_of(const Curve& curve) {
  std::vector<std::pair<double, double>> points;
  points.reserve(curve.size());
  for (size_t i = 0; i < curve.size(); ++i) {
    points.emplace_back(
        static_cast<double>(i) / static_cast<double>(curve.size() - 1),
        curve[i]);
  }
  return points;
}

Curve mean_of(const std::vector<Curve>& curves) {
  Curve mean(curves.front().size());
  for (const Curve& curve : curves) {
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] += curve[i] / static_cast<double>(curves.size());
    }
  }
  return mean;
}

cv::Mat draw_curve(const CurveKind& kind, const MetricFigures& figures,
                   const std::string& subject) {
  const metrics::AveragePrecision& precision = figures.precision;
  const bool is_named = precision.classes.size() <= kMostNamedClasses;
  chart::LineChart chart;
  chart.title = kind.title + (subject.empty() ? "" : ", " + subject);
  chart.x = {kind.x_title, 1, tick};
  chart.y = {kind.y_title, 1.02, tick};
  std::vector<Curve> curves;
  for (size_t i = 0; i < precision.classes.size(); ++i) {
    const metrics::ClassPrecision& one = precision.classes[i];
    curves.push_back(kind.of(precision.curves[i]));
    chart::LineChart::Line line;
    line.width = 1;
    line.colour = chart::kFaint;
    if (is_named) {
      const auto c = static_cast<size_t>(one.class_index);
      line.name = chart::shortened(figures.class_names.at(c), 18);
      if (kind.remark) line.name += " " + kind.remark(one);
      line.colour = chart::chart_colour(c + 1);
    }
    line.points = points_of(curves.back());
    chart.lines.push_back(std::move(line));
  }
  const Curve mean = mean_of(curves);
  chart.lines.push_back({.name = "all " + kind.remark_of_mean(mean),
                         .colour = chart::kMean,
                         .width = 3,
                         .points = points_of(mean)});
  return chart::draw_line_chart(chart, kCurveSize);
}

// "0.71 at 0.334": the maximum, and its confidence.
std::string highest(const Curve& mean) {
  const auto most = std::max_element(mean.begin(), mean.end());
  return number(*most) + " at " +
         number(static_cast<double>(most - mean.begin()) /
                static_cast<double>(mean.size() - 1));
}

std::vector<CurveKind> kinds(const MetricFigures& figures) {
  const auto none = [](const metrics::ClassPrecision&) {
    return std::string();
  };
  return {
      {run_files::kCurvePicture, "Precision over recall at IoU 0.5", "recall",
       "precision",
       [](const metrics::ClassCurves& c) { return c.precision_by_recall; },
       [](const metrics::ClassPrecision& one) { return number(one.ap50()); },
       [&](const Curve&) {
         return number(figures.precision.map50) + " mAP@0.5";
       }},
      {"P_curve.png", "Precision over confidence", "confidence", "precision",
       [](const metrics::ClassCurves& c) { return c.precision; }, none,
       highest},
      {"R_curve.png", "Recall over confidence", "confidence", "recall",
       [](const metrics::ClassCurves& c) { return c.recall; }, none, highest},
      {"F1_curve.png", "F1 over confidence", "confidence", "F1",
       [](const metrics::ClassCurves& c) { return c.f1(); }, none, highest}};
}

constexpr size_t kNumColumns = 10;  // losses and metrics in results.csv
constexpr int kPanelWidth = 440, kPanelHeight = 360, kLegendHeight = 30;
constexpr double kSmoothing = 3;  // the width of the Gaussian, in epochs
// Indices for chart_colour().
constexpr size_t kPointColour = 1, kSmoothColour = 2;

using Column = std::vector<double>;  // NaN marks a gap

double number_of(std::string text) {
  std::erase(text, ' ');
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return value;
}

struct Table {
  std::vector<std::string> names;
  std::vector<Column> columns;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream words(line);
  for (std::string cell; std::getline(words, cell, ',');) cells.push_back(cell);
  return cells;
}

Table read_table(const std::filesystem::path& csv) {
  std::istringstream file(text_or_none(csv));
  Table table;
  std::string line;
  if (!std::getline(file, line)) return table;
  table.names = cells_of(line);
  table.columns.resize(table.names.size());
  while (std::getline(file, line)) {
    std::vector<std::string> cells = cells_of(line);
    cells.resize(table.names.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      table.columns[i].push_back(number_of(cells[i]));
    }
  }
  return table;
}

// For each epoch the mean of the values, weighted by a Gaussian around this
// epoch; gaps have no weight.
Column smoothed(const Column& epochs, const Column& values) {
  Column result;
  for (const double at : epochs) {
    double sum = 0, weights = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i]) || !std::isfinite(epochs[i])) continue;
      const double distance = (epochs[i] - at) / kSmoothing;
      const double weight = std::exp(-distance * distance / 2);
      sum += weight * values[i];
      weights += weight;
    }
    result.push_back(sum / weights);
  }
  return result;
}

chart::LineChart::Line line_of(const Column& epochs, const Column& values,
                               const cv::Scalar& colour, int width) {
  chart::LineChart::Line line;
  line.colour = colour;
  line.width = width;
  for (size_t i = 0; i < values.size(); ++i) {
    // Lines pass over epochs that were not validated.
    if (!std::isfinite(values[i])) continue;
    line.points.emplace_back(epochs[i], values[i]);
  }
  return line;
}

std::string axis_number(double value) { return significant_text(value, 4); }

// The range of the finite values with a margin. It begins at 0 if this makes
// the curve only a little lower.
chart::ChartAxis axis_of(const std::string& title, const Column& values,
                         double air) {
  double least = 0, most = 0;
  bool is_empty = true;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    least = is_empty ? value : std::min(least, value);
    most = is_empty ? value : std::max(most, value);
    is_empty = false;
  }
  if (least >= 0 && least < 0.25 * most) least = 0;
  if (most - least <= 1e-9 * std::abs(most)) most = least + 1;
  const double margin = air * (most - least);
  return {title, most + margin, axis_number, least == 0 ? 0 : least - margin};
}

void draw_column(cv::Mat& picture, cv::Rect place, const std::string& name,
                 const Column& epochs, const Column& values) {
  chart::LineChart chart;
  chart.title = name;
  chart.x = axis_of("epoch", epochs, 0);
  chart.y = axis_of("", values, 0.08);
  if (epochs.size() > 3) {
    chart.lines.push_back(line_of(epochs, smoothed(epochs, values),
                                  chart::chart_colour(kSmoothColour), 3));
  }
  chart.lines.push_back(
      line_of(epochs, values, chart::chart_colour(kPointColour), 2));
  // With few epochs the points are drawn too.
  if (epochs.size() <= 30) {
    chart.lines.push_back(chart.lines.back());
    chart.lines.back().dotted = true;
  }
  chart::draw_line_chart(chart, picture, place);
}

// Explains the dots and the thick line of every panel.
void draw_results_legend(cv::Mat& picture) {
  constexpr int kY = kLegendHeight / 2;
  const auto colour = [](size_t index) { return chart::chart_colour(index); };
  cv::circle(picture, {24, kY}, 4, colour(kPointColour), cv::FILLED,
             cv::LINE_AA);
  chart::draw_text(picture, "an epoch", {38, kY + 5});
  cv::line(picture, {140, kY}, {170, kY}, colour(kSmoothColour), 3,
           cv::LINE_AA);
  chart::draw_text(picture, "smoothed", {180, kY + 5});
}

}  // namespace

std::vector<NamedPicture> draw_curves(const MetricFigures& figures,
                                      const std::string& subject) {
  std::vector<NamedPicture> pictures;
  if (figures.precision.classes.empty()) return pictures;
  for (const CurveKind& kind : kinds(figures)) {
    pictures.push_back({kind.file, draw_curve(kind, figures, subject)});
  }
  return pictures;
}

cv::Mat draw_confusion_matrix(const MetricFigures& figures,
                              const std::string& subject) {
  HEADROOM_CHECK(figures.class_names.size() <= kMostMatrixClasses,
                 "too many classes for a picture");
  const auto counts = metrics::confusion_matrix(
      figures.confusions, static_cast<int64_t>(figures.class_names.size()));
  chart::MatrixChart chart;
  chart.title = "Confusion matrix at confidence 0.25 and IoU 0.45" +
                (subject.empty() ? "" : ", " + subject);
  chart.row_title = "predicted";
  chart.column_title = "true (each column adds up to 1)";
  chart.names = figures.class_names;
  chart.names.emplace_back("background");
  chart.values.assign(counts.size(), Curve(counts.size()));
  for (size_t column = 0; column < counts.size(); ++column) {
    int64_t sum = 0;
    for (const auto& row : counts) sum += row[column];
    if (sum == 0) continue;
    for (size_t row = 0; row < counts.size(); ++row) {
      chart.values[row][column] =
          static_cast<double>(counts[row][column]) / static_cast<double>(sum);
    }
  }
  return chart::draw_matrix_chart(chart);
}

std::optional<cv::Mat> draw_results(const std::filesystem::path& results_csv) {
  Table table = read_table(results_csv);
  if (table.columns.size() <= kNumColumns || table.columns.front().empty()) {
    return std::nullopt;
  }
  // The file counts epochs from 0; the picture and the console count from 1.
  for (double& epoch : table.columns.front()) ++epoch;
  // YOLOv5's order: training losses above validation losses, metrics at the
  // right.
  constexpr std::array<size_t, kNumColumns> kOrder = {1, 2, 3,  4, 5,
                                                      8, 9, 10, 6, 7};
  constexpr int kAcross = 5;
  cv::Mat picture(kLegendHeight + 2 * kPanelHeight, kAcross * kPanelWidth,
                  CV_8UC3, chart::kPaper);
  draw_results_legend(picture);
  for (size_t i = 0; i < kNumColumns; ++i) {
    const int across = static_cast<int>(i) % kAcross;
    const int down = static_cast<int>(i) / kAcross;
    const size_t column = kOrder[i];
    draw_column(picture,
                {across * kPanelWidth, kLegendHeight + down * kPanelHeight,
                 kPanelWidth, kPanelHeight},
                table.names[column], table.columns.front(),
                table.columns[column]);
  }
  return picture;
}

}  // namespace headroom::pictures
