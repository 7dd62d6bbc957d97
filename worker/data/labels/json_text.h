// The JSON files of labels, read in one pass without a tree: events of
// nlohmann's parser, which keeps no stack of its own for them, so that nesting
// costs a bit per level, with the line that each stands in.
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

// The text of a JSON file. Throws Error (exit 4): no such file, over 4 GiB,
// another kind of file. `what`: "COCO's JSON".
std::string read_json_text(const std::filesystem::path& file,
                           const std::string& what);

// Why a text is no JSON, in a few words.
std::string json_error_text(const nlohmann::json::exception& error);

// Characters of the text that count the lines as they go by.
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

// Hands the events of the text to `handler`; `line` is the one that it stands
// in. REQUIRES: line is 1.
template <typename JsonHandler>
void parse_json_events(std::string_view text, int64_t& line,
                       JsonHandler& handler) {
  int64_t unused = 0;
  nlohmann::json::sax_parse(
      CountingIterator(text.data(), &line),
      CountingIterator(text.data() + text.size(), &unused), &handler);
}

}  // namespace headroom::labels
