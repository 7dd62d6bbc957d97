// Terminal: this process's stderr, with one live line at its end.
//
// Lines that stay are printed above the live line, whoever prints them; only
// here does the program write to stderr while a run goes on.
//
// Threads: any thread may call any method; lines are never interleaved.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace headroom::cli {

class Terminal {
 public:
  Terminal();
  ~Terminal() { end_live(); }

  bool is_interactive() const { return is_interactive_; }
  size_t width() const;  // characters; 0 when not interactive

  void print(const std::string& line);
  void set_live(const std::string& line);
  // The live line becomes one that stays.
  void end_live();
  // The live line goes, for what follows says more.
  void clear_live();

 private:
  void write_all(const std::string& text);

  const bool is_interactive_;
  std::mutex mutex_;  // guards live_ and the order of writes
  std::string live_;
};

// Rows of cells as lines of aligned columns.

// Two spaces in front and between; the first row has the most cells. "" for no
// rows.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace headroom::cli
