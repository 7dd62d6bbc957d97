#include "parallel/base/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "parallel/base/text.h"

namespace headroom {
namespace {

// Three significant digits of `value`, without trailing zeros.
std::string three_digits(double value) {
  const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  std::string result = fixed_text(value, decimals);
  if (result.find('.') != std::string::npos) {
    while (result.back() == '0') result.pop_back();
    if (result.back() == '.') result.pop_back();
  }
  return result;
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return three_digits(value) + " " + kUnits[unit];
}

std::string exact_bytes(int64_t bytes) {
  return cat(format_bytes(bytes), " (", bytes, " bytes)");
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end == copy.c_str() || !(value >= 0)) return std::nullopt;
  std::string unit;
  for (; *end != '\0'; ++end) {
    if (!std::isspace(static_cast<unsigned char>(*end))) {
      unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*end)));
    }
  }
  if (unit.ends_with('b')) unit.pop_back();
  if (unit.ends_with('i')) unit.pop_back();
  static constexpr std::array<std::string_view, 5> kFactors = {"", "k", "m",
                                                               "g", "t"};
  const auto found = std::ranges::find(kFactors, unit);
  if (found == kFactors.end()) return std::nullopt;
  const auto power = static_cast<int>(found - kFactors.begin());
  const double bytes = std::ldexp(value, 10 * power);
  if (!(bytes < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::optional<SizeFault> size_fault(const std::string& flag,
                                    const std::string& given) {
  constexpr int64_t kLeastBareBytes = int64_t{1} << 20;
  constexpr double kMostGibibytes = 512;  // suggest MiB for larger numbers
  const std::string use = flag + " " + given;
  const std::optional<int64_t> bytes = parse_bytes(given);
  if (!bytes) return SizeFault{use + " is no size", "write it as 8GiB"};
  const bool is_bare =
      given.find_first_not_of("0123456789.") == std::string::npos;
  const double number = std::strtod(given.c_str(), nullptr);
  if (!is_bare || number == 0 || *bytes >= kLeastBareBytes) return {};
  return SizeFault{use + " has no unit",
                   "write " + use + (number > kMostGibibytes ? "MiB" : "GiB")};
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return three_digits(seconds * 1e6) + "us";
  if (seconds < 1) return three_digits(seconds * 1e3) + "ms";
  if (seconds < 60) return three_digits(seconds) + "s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  char text[48];
  if (whole < 3600) {
    std::snprintf(text, sizeof text, "%dm%02ds", static_cast<int>(whole / 60),
                  static_cast<int>(whole % 60));
  } else {
    std::snprintf(text, sizeof text, "%lldh%02dm",
                  static_cast<long long>(whole / 3600),
                  static_cast<int>(whole % 3600 / 60));
  }
  return text;
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[48];
  const size_t size = std::strftime(text, sizeof text, "%FT%T", &parts);
  std::snprintf(text + size, sizeof text - size, ".%03dZ",
                static_cast<int>(milliseconds % 1000));
  return text;
}

std::optional<int64_t> utc_milliseconds(const std::string& text) {
  std::tm time{};
  const char* const rest = strptime(text.c_str(), "%FT%T", &time);
  if (rest == nullptr || *rest != '.') return std::nullopt;
  const auto fraction = parse_whole(std::string_view(rest + 1).substr(0, 3), 0);
  if (!fraction) return std::nullopt;
  return static_cast<int64_t>(timegm(&time)) * 1000 + *fraction;
}

}  // namespace headroom
