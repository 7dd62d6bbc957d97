// Terminal: this process's stderr, with one live line at the bottom.
//
// Permanent lines are printed above the live line. During a run the program
// writes to stderr only through this class. The destructor clears the live
// line, also after an error, because it would be outdated.
//
// Threads: any thread may call any method; lines are never interleaved.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/base/terminal_style.h"

namespace headroom::cli {

class Terminal {
 public:
  Terminal();
  ~Terminal() { clear_live(); }

  const TerminalStyle& style() const { return style_; }
  size_t width() const;  // characters; 0 when not interactive

  // Prints a permanent line; a warning is coloured.
  void print(const std::string& line);
  void print_header(const std::string& line);
  // Replaces the live line. REQUIRES: `line` fits into the terminal and has no
  // escape sequences except those of painted().
  void set_live(const std::string& line);
  // Removes the live line.
  void clear_live();

 private:
  void print_painted(const std::string& line);
  void write_all(const std::string& text);

  const TerminalStyle style_;
  std::mutex mutex_;  // guards live_ and orders the writes
  std::string live_;
};

// Formats rows of cells as lines of aligned columns, indented and separated by
// two spaces. The first row must have the most cells. "" for no rows.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace headroom::cli
