// Numbers and lists as text, and whole numbers from text.
//
// Bytes and durations: units.h. Scalars of YAML files: configs/yaml/scalar.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace headroom {

// The parts one after the other, numbers as std::to_string() writes them:
// cat("rank ", 1, " of ", 2) -> "rank 1 of 2".
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string text;
  const auto add = [&text](const auto& part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_arithmetic_v<Part> && !std::is_same_v<Part, char>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  };
  (add(parts), ...);
  return text;
}

// 0.5 with 3 decimals -> "0.500".
std::string fixed_text(double value, int decimals);

// 1234567 with 3 digits -> "1.23e+06"; 0.25 -> "0.25". No trailing zeros.
std::string significant_text(double value, int digits);

// Parses a whole number: decimal digits, with at most a minus before them.
// Returns nullopt if `text` is anything else or the number is outside [low,
// high].
std::optional<int64_t> parse_whole(
    std::string_view text, int64_t low = std::numeric_limits<int64_t>::min(),
    int64_t high = std::numeric_limits<int64_t>::max());

// Joins text_of() of all items, separated by `between`.
template <typename Items, typename TextOf>
std::string joined(const Items& items, std::string_view between,
                   const TextOf& text_of) {
  std::string text;
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) text += between;
    is_first = false;
    text += text_of(item);
  }
  return text;
}

template <typename Words>
std::string joined(const Words& words, std::string_view between) {
  return joined(words, between, [](const auto& word) { return word; });
}

// `text` for use in a URL: every byte except letters, digits, '-', '_' and '.'
// is percent-encoded, as "%20".
std::string url_encoded(std::string_view text);

// "a, b or c".
std::string either_of(const std::vector<std::string>& words);

// "a, b, c and 5 more": shows at most `most` items, so that it fits one line.
template <typename Item, typename TextOf>
std::string first_of(const std::vector<Item>& items, size_t most,
                     const TextOf& text_of) {
  const size_t shown = std::min(items.size(), most);
  const std::string text = joined(std::span(items).first(shown), ", ", text_of);
  if (shown == items.size()) return text;
  return cat(text, " and ", items.size() - shown, " more");
}

}  // namespace headroom
