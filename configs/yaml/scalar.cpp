#include "configs/yaml/scalar.h"

#include <charconv>
#include <cmath>

namespace headroom::yaml {
namespace {

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
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
  return parse_number<int64_t>(text);
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

}  // namespace headroom::yaml
