// The terminal: its abilities and width, text that fits it, and a live line at
// its bottom. Also ends the process when nothing reads its output.
//
// Threads: any, as long as the environment does not change.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace headroom {

struct TerminalStyle {
  // Lines may be overwritten. False for pipes, files, TERM=dumb, and under CI.
  bool rewrites_lines = false;
  // Colours may be used: only if rewrites_lines is true, never with NO_COLOR.
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

// `text` in this colour; unchanged if the terminal has no colours.
std::string painted(const std::string& text, Colour colour,
                    const TerminalStyle& style);

// `line` cut to at most `columns` columns (0 means no limit), at a word
// boundary if possible, with a mark at the end. REQUIRES: no escape sequences.
std::string cut_line(std::string_view line, size_t columns, bool is_unicode);

// Terminal: standard error, with one live line at the bottom. Permanent lines
// are printed above it. The destructor removes the live line, also after an
// error, because it would be outdated.
//
// Threads: any thread may call any method; lines are never interleaved.
class Terminal {
 public:
  struct Output {
    TerminalStyle style;
    std::function<void(std::string_view)> write;
    std::function<size_t()> columns;  // 0 if the width is unknown
  };
  static Output standard_error();

  explicit Terminal(Output output = standard_error());
  ~Terminal() { clear_live(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  const TerminalStyle& style() const { return output_.style; }
  // The width in characters; 0 if it is unknown, or if lines cannot be
  // rewritten.
  size_t width() const;

  // Prints a permanent line; a warning is coloured.
  void print(const std::string& line);
  void print_header(const std::string& line);
  // Removes the live line while `print` writes whole lines to the terminal.
  void above(const std::function<void()>& print);

  // Replaces the live line. Does nothing if lines cannot be rewritten.
  // REQUIRES: `line` fits into the terminal and has no escape sequences except
  // those of painted().
  void set_live(const std::string& line);
  void clear_live();

 private:
  void print_painted(const std::string& line);

  const Output output_;
  std::mutex mutex_;  // guards live_ and orders the writes
  std::string live_;
};

// If nothing reads standard output any more, as after head(1), ends the process
// silently by SIGPIPE, as other programs end.
void end_if_output_has_no_reader();

}  // namespace headroom
