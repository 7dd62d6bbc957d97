// Parses scalars of YAML files and of --set into values, by one set of rules.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headroom::yaml {

// Accepts true, false, yes, no, on, off, in lower case, capitalised or in
// capitals.
std::optional<bool> parse_bool(std::string_view text);

// Accepts decimal digits with an optional sign; returns nullopt if the number
// does not fit into the type.
std::optional<int64_t> parse_int64(std::string_view text);
std::optional<uint64_t> parse_uint64(std::string_view text);

// Accepts a finite decimal number.
std::optional<double> parse_double(std::string_view text);

// The shortest text that parse_double turns back into exactly `value`.
std::string exact_text(double value);

// The number of insertions, deletions, replacements and swaps of neighbours
// that turn `a` into `b` (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

// The name in `known` nearest to `word`, the first if several are equally near;
// "" if no name is similar enough.
std::string nearest_name(std::string_view word,
                         std::span<const std::string> known);

// "did you mean 'epochs'?", or `otherwise` if no name is similar.
std::string suggestion(std::string_view word,
                       std::span<const std::string> known,
                       const std::string& otherwise);

}  // namespace headroom::yaml
