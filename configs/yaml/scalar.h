// Words of YAML files and of --set as values, by one rule for both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headroom::yaml {

// true false yes no on off, in lower case, capitalised or in capitals.
std::optional<bool> parse_bool(std::string_view text);

// A whole number in decimal digits, with an optional sign; nothing if it does
// not fit.
std::optional<int64_t> parse_int64(std::string_view text);
std::optional<uint64_t> parse_uint64(std::string_view text);

// A finite decimal number.
std::optional<double> parse_double(std::string_view text);

// The shortest text that parse_double turns into exactly `value` again.
std::string exact_text(double value);

// The known name that somebody who mistyped one most likely meant.

// Insertions, deletions, replacements and swaps of neighbours that turn `a`
// into `b` (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

// The name in `known` nearest to `word`, the first of equals; "" when none is
// near enough to be what was meant.
std::string nearest_name(std::string_view word,
                         std::span<const std::string> known);

// "did you mean 'epochs'?", or `otherwise` when nothing is near.
std::string suggestion(std::string_view word,
                       std::span<const std::string> known,
                       const std::string& otherwise);

}  // namespace headroom::yaml
