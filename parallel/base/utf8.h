// Text for messages and JSON, which must be UTF-8, and for hints with commands.
// The end of a process's stderr, a path or an exception's text are mere bytes,
// and a receiver drops a message with other bytes in a string field.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom {

// `bytes` with every byte that is not part of a UTF-8 character as '?'.
std::string valid_utf8(std::string_view bytes);

// `bytes` as a terminal may show them: valid UTF-8, and characters that would
// command it (controls other than line feed and tab, and marks that turn the
// direction of writing) in the form "\x1b".
std::string printable(std::string_view bytes);

// The same in one line of at most `max_bytes`; what is cut ends with "...".
std::string short_line(std::string_view bytes, size_t max_bytes);

// The columns of a terminal that UTF-8 text takes: 2 for a wide character such
// as a Chinese one, 0 for an accent that joins the one before, 1 for a byte
// that is no character.
size_t display_width(std::string_view text);

// `text` with spaces behind it up to so many columns.
std::string padded(std::string_view text, size_t columns);

// `text` as one word of a shell command, for hints that people copy: unchanged
// where the shell would not change it, else in single quotes.
std::string shell_word(const std::string& text);

}  // namespace headroom
