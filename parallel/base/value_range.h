// ValueRange: the pixel values that become 0 and 1 for the network.
//
// data.yaml sets it with `range:`, for all bands or for each band. A run stores
// it as text (RunConfig::value_range), and a weights file under the key
// kValueRange. Without a range, pixels have 8 bits and 255 becomes 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

struct ValueRange {
  double low = 0;   // this and smaller values become 0
  double high = 1;  // this and larger values become 1
  bool operator==(const ValueRange&) const = default;
};

// True if both are finite, low < high, and high - low is neither tiny nor
// infinite.
bool is_value_range(double low, double high);

// One range for all bands, or one per band; empty for 8-bit images.
using ValueRanges = std::vector<ValueRange>;

// The key in a weights file.
inline constexpr const char* kValueRange = "value_range";

// "0,4095", or "0,4095 100,9000" for two bands.
std::string to_text(const ValueRanges& ranges);

// The reverse of to_text(); nullopt if a word is not a valid pair.
std::optional<ValueRanges> parse_value_ranges(std::string_view text);

// Why images of `bands` bands cannot have these ranges; "" if they can.
std::string range_error(const ValueRanges& ranges, int64_t bands);

// Bytes of one band of one pixel in memory: 2 if there is a range, else 1.
constexpr int64_t sample_bytes(bool has_range) { return has_range ? 2 : 1; }

}  // namespace headroom
