#include "worker/pictures/results_picture.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "worker/chart/line_chart.h"

namespace headroom::pictures {
namespace {

constexpr size_t kNumColumns = 10;  // of losses and metrics
constexpr int kPanelWidth = 440, kPanelHeight = 360;
constexpr double kSmoothing = 3;  // epochs: the width of the bell
const cv::Scalar kPointColour(31, 119, 180), kSmoothColour(255, 127, 14);

using Column = std::vector<double>;  // NaN: a gap

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
  std::ifstream file(csv);
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

// Weighted by a bell over the epochs; gaps have no weight.
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
  chart::LineChart::Line line{"", colour, width, false, {}};
  for (size_t i = 0; i < values.size(); ++i) {
    line.points.emplace_back(epochs[i], values[i]);
  }
  return line;
}

std::string axis_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

void draw_column(cv::Mat& picture, cv::Rect place, const std::string& name,
                 const Column& epochs, const Column& values) {
  double last = 1, most = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(epochs[i])) last = std::max(last, epochs[i]);
    if (std::isfinite(values[i])) most = std::max(most, values[i]);
  }
  chart::LineChart chart;
  chart.title = name;
  chart.x = {"epoch", last, axis_number};
  chart.y = {"", most > 0 ? 1.08 * most : 1, axis_number};
  if (epochs.size() > 3) {
    chart.lines.push_back(
        line_of(epochs, smoothed(epochs, values), kSmoothColour, 3));
  }
  chart.lines.push_back(line_of(epochs, values, kPointColour, 2));
  // Few epochs are seen as points too.
  if (epochs.size() <= 30) {
    chart.lines.push_back(chart.lines.back());
    chart.lines.back().dotted = true;
  }
  chart::draw_line_chart(chart, picture, place);
}

}  // namespace

std::optional<cv::Mat> draw_results(const std::filesystem::path& results_csv) {
  const Table table = read_table(results_csv);
  if (table.columns.size() <= kNumColumns || table.columns.front().empty()) {
    return std::nullopt;
  }
  // YOLOv5's order: losses of training above those of validation, metrics to
  // their right.
  constexpr std::array<size_t, kNumColumns> kOrder = {1, 2, 3,  4, 5,
                                                      8, 9, 10, 6, 7};
  constexpr int kAcross = 5;
  cv::Mat picture(2 * kPanelHeight, kAcross * kPanelWidth, CV_8UC3);
  for (size_t i = 0; i < kNumColumns; ++i) {
    const int across = static_cast<int>(i) % kAcross;
    const int down = static_cast<int>(i) / kAcross;
    const size_t column = kOrder[i];
    draw_column(
        picture,
        {across * kPanelWidth, down * kPanelHeight, kPanelWidth, kPanelHeight},
        table.names[column], table.columns.front(), table.columns[column]);
  }
  return picture;
}

}  // namespace headroom::pictures
