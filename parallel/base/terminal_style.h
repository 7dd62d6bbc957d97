// TerminalStyle: the abilities of a terminal. Also text that fits a terminal's
// width, and the end of the process when its output has no reader.
//
// Threads: any, as long as the environment does not change.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace headroom {

struct TerminalStyle {
  // A line may be overwritten. False for pipes, files, TERM=dumb, and under CI.
  bool rewrites_lines = false;
  // Only if lines may be overwritten, and never with NO_COLOR.
  bool has_colours = false;
  // The locale uses UTF-8. Otherwise bars are drawn with ASCII characters.
  bool is_unicode = false;
};

// Returns the value of an environment variable, or nullptr if it is not set.
using EnvironmentVariable = std::function<const char*(const char* name)>;

TerminalStyle terminal_style(bool is_terminal,
                             const EnvironmentVariable& variable);
// The style for an open file descriptor of this process.
TerminalStyle terminal_style_of(int file_descriptor);

// Usable columns and lines; 0 if unknown. The last column is left free, because
// some terminals wrap there.
struct TerminalSize {
  size_t columns = 0;
  size_t lines = 0;
};
TerminalSize terminal_size_of(int file_descriptor);

enum class Colour { kBold, kDim, kGreen, kCyan, kYellow, kRed };

// `text` in that colour; unchanged if the terminal has no colours.
std::string painted(const std::string& text, Colour colour,
                    const TerminalStyle& style);

// `line` cut to at most `columns` columns (0 means no limit), at a word
// boundary if possible, with a mark at the end. REQUIRES: no escape sequences.
std::string cut_line(std::string_view line, size_t columns, bool is_unicode);

// If nothing reads standard output any more, as after head(1), ends the process
// silently by SIGPIPE, as other programs end.
void end_if_output_has_no_reader();

}  // namespace headroom
