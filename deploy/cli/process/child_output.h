// Which of a child's lines are shown as they come.
//
// Log lines (parallel/base/log.h) from warnings upwards are; whatever else a
// dying process writes is not: these are its last words and come back in the
// reason for which the run ended, once. A refusal travels as a value
// (refusal_channel.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

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

// A line of a child, taken apart: "12:03:44 warning text" has the level
// "warning", and what is no log line the level "output".
struct LogLine {
  std::string_view level;
  std::string_view message;
};
// Into `line`, which must outlive the result.
LogLine split_log_line(std::string_view line);

// "12:03:44 warn …" and "12:03:44 error …".
bool is_shown_at_once(std::string_view line);

// The line of `last_words` that says best why a process ended: the last one
// that is no log line, else the last one; "".
std::string telling_line(const std::string& last_words);

}  // namespace headroom::cli
