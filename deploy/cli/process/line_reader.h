// LineReader: a thread that reads lines from a pipe until its end.
//
// A line longer than 8 KiB is handed over in pieces: a child gone wrong must
// not fill its parent's memory.
//
// Threads: `on_line` is called from the reader's thread.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace headroom::cli {

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

}  // namespace headroom::cli
