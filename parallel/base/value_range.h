// ValueRange: which values of an image file a network sees as 0 and as 1.
//
// `range:` of a data.yaml says so, for all bands or for each of them; a run
// keeps it as text (RunConfig::value_range), and a file of weights under
// kValueRange. Where there is none, samples have 8 bits, and 255 is 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

struct ValueRange {
  double low = 0;   // this value and smaller ones are 0
  double high = 1;  // this value and larger ones are 1
  bool operator==(const ValueRange&) const = default;
};

// Finite, low below high, and neither so close nor so far apart that no
// difference between values could be computed.
bool is_value_range(double low, double high);

// One for all bands, or one for each; none: 8 bits.
using ValueRanges = std::vector<ValueRange>;

// The key in a file of weights.
inline constexpr const char* kValueRange = "value_range";

// "0,4095", or "0,4095 100,9000" for two bands.
std::string to_text(const ValueRanges& ranges);

// The reverse; nothing where a word is no pair that is_value_range. "" is no
// range.
std::optional<ValueRanges> parse_value_ranges(std::string_view text);

// Why images of so many bands cannot have these ranges; "" if they can.
std::string range_error(const ValueRanges& ranges, int64_t bands);

// Bytes of a band of a pixel in memory: 16 bits where there is a range.
constexpr int64_t sample_bytes(bool has_range) { return has_range ? 2 : 1; }

}  // namespace headroom
