#include "configs/yaml/scalar.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "parallel/base/text.h"

namespace headroom::yaml {
namespace {

std::string_view without_plus(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  return text;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  text = without_plus(text);
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<bool> parse_bool(std::string_view text) {
  for (const char* word :
       {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}) {
    if (text == word) return true;
  }
  for (const char* word :
       {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}) {
    if (text == word) return false;
  }
  return std::nullopt;
}

std::optional<int64_t> parse_int64(std::string_view text) {
  return parse_whole(without_plus(text));
}

std::optional<uint64_t> parse_uint64(std::string_view text) {
  return parse_number<uint64_t>(text);
}

std::optional<double> parse_double(std::string_view text) {
  const std::optional<double> value = parse_number<double>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::string exact_text(double value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end);
}

int edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> before_last(width), last(width), row(width);
  for (size_t j = 0; j < width; ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < width; ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view word,
                         std::span<const std::string> known) {
  // A name with less than two thirds of its letters in common is not taken for
  // a typing error. The limit of 64 bounds the work on a malicious file's keys.
  if (word.empty() || word.size() > 64) return "";
  int best = std::max<int>(2, static_cast<int>(word.size()) / 3) + 1;
  std::string nearest;
  for (const std::string& name : known) {
    const int distance = edit_distance(word, name);
    if (distance < best && distance < static_cast<int>(name.size())) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string suggestion(std::string_view word,
                       std::span<const std::string> known,
                       const std::string& otherwise) {
  const std::string nearest = nearest_name(word, known);
  return nearest.empty() ? otherwise : "did you mean '" + nearest + "'?";
}

}  // namespace headroom::yaml
