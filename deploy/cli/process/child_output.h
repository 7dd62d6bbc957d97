// Reads a child's output line by line; decides which lines are shown at once.
//
// Log records (parallel/base/log.h) of level warning or above are shown when
// they arrive. The last lines of all output are kept; they explain the end of
// the run if the process fails. A refusal does not use the output (see
// proto/refusal_channel.h).
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "parallel/base/log.h"

namespace headroom::cli {

// A thread that reads lines from a pipe until the pipe ends.
//
// A line longer than 8 KiB is delivered in pieces, so that a faulty child
// cannot fill its parent's memory.
//
// Threads: `on_line` is called from the reader's thread.
class LineReader {
 public:
  // Takes ownership of `fd`, the reading end, unless it throws
  // std::system_error: the system has no thread or no descriptor left.
  LineReader(int fd, std::function<void(std::string)> on_line);
  // Reads the data that has already arrived, then ends, even if another process
  // (a grandchild) still holds the pipe open or writes on.
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

 private:
  void run();
  // Reads at most `most` bytes, in one call. Returns their number; 0 if nothing
  // has arrived, -1 at the end of the pipe.
  int read_some(size_t most);

  int fd_;
  int stop_fd_;
  std::function<void(std::string)> on_line_;
  std::string partial_;
  std::thread thread_;
};

// A line of a child: a record of its log, or any other output.
struct ChildLine {
  std::optional<log::Record> record;
  std::string text;  // the text to show to the user

  bool is_shown_at_once() const {
    return record && record->level >= log::Level::kWarn;
  }
};
ChildLine child_line(std::string line);

// Returns the line that best explains why a process ended: the last line that
// is not a log record, else the last line, else "".
std::string telling_line(const std::deque<ChildLine>& lines);

}  // namespace headroom::cli
