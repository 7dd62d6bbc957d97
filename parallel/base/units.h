// Bytes, times and counts in readable form, and rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/base/text.h"

namespace headroom {

// 1536 -> "1.5 KiB"; three significant digits, binary units.
std::string format_bytes(int64_t bytes);

// "1.5 KiB (1536 bytes)", for limits that must be exact.
std::string exact_bytes(int64_t bytes);

// Parses "2GiB", "512 MiB", "1.5G" or "800000000": binary units, any case.
// Returns no value if `text` is not a size.
std::optional<int64_t> parse_bytes(std::string_view text);

// Says why the value of `flag` is not a plausible size, and what to write
// instead. The value may be no size at all, or a number without a unit that is
// too small to mean bytes.
struct SizeFault {
  std::string what, remedy;
};
std::optional<SizeFault> size_fault(const std::string& flag,
                                    const std::string& given);

// 75.2 -> "1m15s"; 0.0123 -> "12.3ms".
std::string format_seconds(double seconds);

// The present time in UTC: "2026-11-21T08:23:00.123Z".
std::string utc_now();
// Parses the text of utc_now() into milliseconds since 1970; nullopt for
// others.
std::optional<int64_t> utc_milliseconds(const std::string& text);

// value / part, rounded up. REQUIRES: value >= 0.
constexpr int64_t divided_up(int64_t value, int64_t part) {
  return (value + part - 1) / part;
}

// `value` rounded up to a multiple of `multiple`. REQUIRES: value >= 0.
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return divided_up(value, multiple) * multiple;
}

// A number with its noun: 1 -> "1 image", 2 -> "2 images". Adds "es" after s, x
// and tch: "boxes", "classes", "batches".
inline std::string counted(int64_t number, const std::string& noun) {
  const bool hisses =
      noun.ends_with('s') || noun.ends_with('x') || noun.ends_with("tch");
  return cat(number, " ", noun, number == 1 ? "" : (hisses ? "es" : "s"));
}

}  // namespace headroom
