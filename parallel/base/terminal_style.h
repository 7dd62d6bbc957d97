// TerminalStyle: what a terminal can show, and lines that fit into it; output
// whose reader leaves.
//
// Threads: any, while nobody changes the environment.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace headroom {

struct TerminalStyle {
  // A line may be written over. False for pipes, files, TERM=dumb and under CI,
  // whose logs keep every line.
  bool rewrites_lines = false;
  // Only where lines are rewritten, and never with NO_COLOR.
  bool has_colours = false;
  // The locale is one of UTF-8. Elsewhere bars are of ASCII characters.
  bool is_unicode = false;
};

// The value of an environment variable, nullptr where it is not set.
using EnvironmentVariable = std::function<const char*(const char* name)>;

TerminalStyle terminal_style(bool is_terminal,
                             const EnvironmentVariable& variable);
// The style of an open file of this process.
TerminalStyle terminal_style_of(int file_descriptor);

// Columns and lines that may be written to; 0 where they are not known. The
// last column is left free, because some terminals wrap there.
struct TerminalSize {
  size_t columns = 0;
  size_t lines = 0;
};
TerminalSize terminal_size_of(int file_descriptor);

enum class Colour { kBold, kDim, kGreen, kCyan, kYellow, kRed };

// `text` in that colour, unchanged where there are no colours.
std::string painted(const std::string& text, Colour colour,
                    const TerminalStyle& style);

// `line` in at most so many columns, 0 for any number: cut at a word where
// there is one, with a mark at the end. REQUIRES: no escape sequences.
std::string cut_line(std::string_view line, size_t columns, bool is_unicode);

// Ends the process as SIGPIPE ends other programs, without a word, where nobody
// reads its standard output any more, as after head(1).
void end_if_output_has_no_reader();

}  // namespace headroom
