#include "parallel/base/value_range.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom {
namespace {

std::string exact_text(double value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end);
}

std::optional<double> parse_finite(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

bool is_value_range(double low, double high) {
  constexpr double kLeast = 1e-300;
  return low < high && std::isfinite(high - low) && high - low >= kLeast;
}

std::string to_text(const ValueRanges& ranges) {
  return joined(ranges, " ", [](const ValueRange& range) {
    return exact_text(range.low) + "," + exact_text(range.high);
  });
}

std::optional<ValueRanges> parse_value_ranges(std::string_view text) {
  ValueRanges ranges;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const size_t comma = word.find(',');
    if (comma == std::string_view::npos) return std::nullopt;
    const auto low = parse_finite(word.substr(0, comma));
    const auto high = parse_finite(word.substr(comma + 1));
    if (!low || !high || !is_value_range(*low, *high)) return std::nullopt;
    ranges.push_back({*low, *high});
  }
  return ranges;
}

std::string range_error(const ValueRanges& ranges, int64_t bands) {
  const auto count = static_cast<int64_t>(ranges.size());
  if (count <= 1 || count == bands) return "";
  return "range has " + counted(count, "pair") + ", but images have " +
         counted(bands, "band");
}

}  // namespace headroom
