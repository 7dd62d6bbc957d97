#include "parallel/base/text.h"

#include <cctype>
#include <charconv>
#include <cstdio>
#include <system_error>

namespace headroom {
namespace {

// The largest double has 309 digits before its point.
constexpr int kLongestNumber = 400;

}  // namespace

std::string fixed_text(double value, int decimals) {
  char text[kLongestNumber];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string significant_text(double value, int digits) {
  char text[kLongestNumber];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string url_encoded(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string result;
  for (const unsigned char byte : text) {
    if (std::isalnum(byte) != 0 || byte == '-' || byte == '_' || byte == '.') {
      result += static_cast<char>(byte);
    } else {
      result += {'%', kDigits[byte / 16], kDigits[byte % 16]};
    }
  }
  return result;
}

std::string either_of(const std::vector<std::string>& words) {
  if (words.size() < 2) return joined(words, "");
  return joined(std::span(words).first(words.size() - 1), ", ") + " or " +
         words.back();
}

std::optional<int64_t> parse_whole(std::string_view text, int64_t low,
                                   int64_t high) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const bool is_number = error == std::errc() && stop == end;
  if (!is_number || number < low || number > high) return std::nullopt;
  return number;
}

}  // namespace headroom
