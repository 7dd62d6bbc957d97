#include "configs/layers/anchor_list.h"

#include "configs/yaml/scalar.h"

namespace headroom::layers {
namespace {

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::pair<double, double>> parse_anchor(std::string_view word) {
  const std::vector<std::string_view> sides = parts_of(word, ',');
  if (sides.size() != 2) return std::nullopt;
  const auto width = yaml::parse_double(sides[0]);
  const auto height = yaml::parse_double(sides[1]);
  if (!width || !height || *width <= 0 || *height <= 0) return std::nullopt;
  return std::pair(*width, *height);
}

}  // namespace

std::optional<AnchorList> parse_anchor_list(std::string_view text) {
  AnchorList anchors;
  if (text.empty()) return anchors;
  for (const std::string_view level : parts_of(text, ';')) {
    anchors.emplace_back();
    for (const std::string_view word : parts_of(level, ' ')) {
      if (word.empty()) continue;
      const auto anchor = parse_anchor(word);
      if (!anchor) return std::nullopt;
      anchors.back().push_back(*anchor);
    }
    if (anchors.back().empty() ||
        anchors.back().size() != anchors.front().size()) {
      return std::nullopt;
    }
  }
  return anchors;
}

std::string to_text(const AnchorList& anchors) {
  std::string text;
  for (const auto& level : anchors) {
    if (!text.empty()) text += ';';
    for (const auto& [width, height] : level) {
      if (!text.empty()) text += ' ';
      text += yaml::exact_text(width) + "," + yaml::exact_text(height);
    }
  }
  return text;
}

}  // namespace headroom::layers
