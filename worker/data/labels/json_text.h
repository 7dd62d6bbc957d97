// Reads JSON label files in one pass without a tree, as events of nlohmann's
// parser. The parser keeps no stack for events, so nesting costs one bit per
// level. Each event comes with its line number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace headroom::labels {

inline constexpr int64_t kMostJsonBytes = int64_t{4} << 30;

// Reads a whole JSON file. Throws Error (exit 4) if it does not exist, is over
// 4 GiB or has another file format. `what` names the expected format, for
// example "COCO's JSON".
std::string read_json_text(const std::filesystem::path& file,
                           const std::string& what);

// Describes in a few words why a text is not JSON.
std::string json_error_text(const nlohmann::json::exception& error);

// Iterates over a text and counts its lines.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, int64_t* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const {
    return at_ == other.at_;
  }

 private:
  const char* at_;
  int64_t* line_;
};

// Calls `handler` with the events of the text. `line` is updated to the current
// line. REQUIRES: line is 1.
template <typename JsonHandler>
void parse_json_events(std::string_view text, int64_t& line,
                       JsonHandler& handler) {
  int64_t unused = 0;
  nlohmann::json::sax_parse(
      CountingIterator(text.data(), &line),
      CountingIterator(text.data() + text.size(), &unused), &handler);
}

}  // namespace headroom::labels
