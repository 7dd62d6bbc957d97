// How far a tool has come, on standard error: on a terminal one line that is
// written over, elsewhere a line every ten seconds, so that what is quick says
// nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace headroom::tools {

class ToolProgress {
 public:
  struct Output {
    bool is_terminal = false;
    std::function<void(const std::string&)> write;
    std::function<double()> now;  // seconds
  };

  explicit ToolProgress(Output output = standard_error());
  ~ToolProgress() { clear(); }
  ToolProgress(const ToolProgress&) = delete;
  ToolProgress& operator=(const ToolProgress&) = delete;

  // One more of `total` images has gone through `what`. From any thread.
  void step(const std::string& what, int64_t total);

  // Takes the line from the terminal, before something else is printed.
  void clear();

 private:
  static Output standard_error();

  const Output output_;
  std::mutex mutex_;  // guards what follows
  std::string what_;
  int64_t done_ = 0;
  double said_at_ = 0;
  bool is_shown_ = false;
};

}  // namespace headroom::tools
