// BoundedLines: lines that wait for a slow reader. If there are too many, the
// oldest ones are dropped and counted, because the newest lines are the most
// useful.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace headroom::records {

class BoundedLines {
 public:
  BoundedLines(size_t most_lines, size_t most_bytes)
      : most_lines_(most_lines), most_bytes_(most_bytes) {}

  // Adds a line. Drops the oldest lines until the limits hold, but never the
  // new line.
  void add(std::string line) {
    add_beyond_limits(std::move(line));
    while (lines_.size() > 1 &&
           (lines_.size() > most_lines_ || bytes_ > most_bytes_)) {
      take_oldest();
      ++dropped_;
    }
  }
  // Adds a line, and drops none.
  void add_beyond_limits(std::string line) {
    bytes_ += line.size();
    lines_.push_back(std::move(line));
  }

  bool empty() const { return lines_.empty(); }
  size_t size() const { return lines_.size(); }
  int64_t dropped() const { return dropped_; }
  // REQUIRES for both: !empty().
  const std::string& oldest() const { return lines_.front(); }
  std::string take_oldest() {
    std::string line = std::move(lines_.front());
    lines_.pop_front();
    bytes_ -= line.size();
    return line;
  }

 private:
  const size_t most_lines_, most_bytes_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0;
  int64_t dropped_ = 0;
};

}  // namespace headroom::records
