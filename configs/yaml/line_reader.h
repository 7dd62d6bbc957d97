// Reads lines of text that people and their programs write: labels, lists of
// images, tables, YAML.
//
// Lines may end in LF, CRLF or CR. A byte order mark and a Ctrl-Z at the end,
// as editors of Windows and DOS write them, are no part of the text. A no-break
// space (U+00A0, which text processors write) counts as a space.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom {

// The text with LF as the only line end and without the marks named above.
std::string plain_text(std::string text);

// `text` without blanks at both ends.
std::string_view trimmed(std::string_view text);

// `text` trimmed, and without a pair of equal quotes around it.
std::string_view unquoted(std::string_view text);

class LineReader {
 public:
  // `text` must outlive the reader.
  explicit LineReader(std::string_view text);

  // Moves to the next line. Returns false at the end of the text.
  bool next();

  std::string_view line() const { return line_; }  // without the line end
  int64_t number() const { return number_; }       // counts from 1

 private:
  std::string plain_;  // the converted text; "" if nothing had to be converted
  std::string_view left_, line_;
  int64_t number_ = 0;
};

}  // namespace headroom
