// What a child writes, line by line, and which of it is shown as it comes.
//
// Records of its log (parallel/base/log.h) from warnings upwards are; whatever
// else a dying process writes is not: these are its last words and come back in
// the reason for which the run ended, once. A refusal travels beside the output
// (refusal_channel.h).
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "parallel/base/log.h"

namespace headroom::cli {

// A thread that reads lines from a pipe until its end.
//
// A line longer than 8 KiB is handed over in pieces: a child gone wrong must
// not fill its parent's memory.
//
// Threads: `on_line` is called from the reader's thread.
class LineReader {
 public:
  // Takes ownership of `fd`, the reading end.
  LineReader(int fd, std::function<void(std::string)> on_line);
  // Reads what is there already and ends, also if somebody else (a grandchild)
  // still holds the pipe open.
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

 private:
  void run();
  // False at the end of the pipe.
  bool read_some();

  int fd_;
  int stop_fd_;
  std::function<void(std::string)> on_line_;
  std::string partial_;
  std::thread thread_;
};

// A line of a child: a record of its log, or whatever else it wrote.
struct ChildLine {
  std::optional<log::Record> record;
  std::string text;  // the text that people read

  bool is_shown_at_once() const {
    return record && record->level >= log::Level::kWarn;
  }
};
ChildLine child_line(std::string line);

// The line that says best why a process ended: the last one that its log did
// not write, else the last one; "".
std::string telling_line(const std::deque<ChildLine>& lines);

}  // namespace headroom::cli
