// Numbers and lists as text, and whole numbers back from it.
//
// Bytes and durations are in units.h, words of YAML files in
// configs/yaml/scalar.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// 0.5 with 3 decimals -> "0.500".
std::string fixed_text(double value, int decimals);

// 1234567 in 3 digits -> "1.23e+06"; 0.25 -> "0.25": no zeros at the end.
std::string significant_text(double value, int digits);

// The whole number that `text` consists of, in decimal digits, with at most a
// minus before them; nothing if it is none or outside [low, high].
std::optional<int64_t> parse_whole(
    std::string_view text, int64_t low = std::numeric_limits<int64_t>::min(),
    int64_t high = std::numeric_limits<int64_t>::max());

// The items as text_of() gives them, with `between` between two.
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

// A part of a web address: every byte but letters, digits, '-', '_' and '.' as
// "%20".
std::string url_encoded(std::string_view text);

// "a, b or c".
std::string either_of(const std::vector<std::string>& words);

// "a, b, c and 5 more": at most `most` items, so that a line stays a line.
template <typename Item, typename TextOf>
std::string first_of(const std::vector<Item>& items, size_t most,
                     const TextOf& text_of) {
  const size_t shown = std::min(items.size(), most);
  const std::string text = joined(std::span(items).first(shown), ", ", text_of);
  if (shown == items.size()) return text;
  return text + " and " + std::to_string(items.size() - shown) + " more";
}

}  // namespace headroom
