// Terminal: this process's stderr, with one live line at its end.
//
// Lines that stay are printed above the live line, whoever prints them; only
// here does the program write to stderr while a run goes on. The live line goes
// at the end, also at an error's: it would be stale.
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

  // A warning is coloured as one.
  void print(const std::string& line);
  void print_header(const std::string& line);
  // REQUIRES: a line that fits into the terminal, with no escape sequences but
  // those of painted().
  void set_live(const std::string& line);
  // The live line goes, for what follows says more.
  void clear_live();

 private:
  void print_painted(const std::string& line);
  void write_all(const std::string& text);

  const TerminalStyle style_;
  std::mutex mutex_;  // guards live_ and the order of writes
  std::string live_;
};

// Rows of cells as lines of aligned columns, with two spaces in front and
// between; the first row has the most cells. "" for no rows.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace headroom::cli
