// Text that is safe in messages, JSON, terminals and shell commands. A
// process's stderr, a path or an exception's text may contain any bytes, but
// JSON and protobuf strings must be UTF-8: a receiver drops a whole message
// with other bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom {

// `bytes` with '?' for every byte that is not part of a UTF-8 character.
std::string valid_utf8(std::string_view bytes);

// `bytes` made safe for a terminal: valid UTF-8, with control characters
// (except line feed and tab) and marks that change the writing direction shown
// as "\x1b".
std::string printable(std::string_view bytes);

// printable() text of at most `max_bytes`; "..." ends a cut text.
std::string shortened(std::string_view bytes, size_t max_bytes);

// shortened() text on one line.
std::string short_line(std::string_view bytes, size_t max_bytes);

// The number of terminal columns of UTF-8 text: 2 for a wide character such as
// a Chinese one, 0 for a combining accent, 1 for a byte that is no character.
size_t display_width(std::string_view text);

// `text`, with spaces appended up to `columns` columns.
std::string padded(std::string_view text, size_t columns);

// `text` quoted as one word of a shell command, for hints that users copy;
// unchanged if it needs no quotes.
std::string shell_word(const std::string& text);

}  // namespace headroom
