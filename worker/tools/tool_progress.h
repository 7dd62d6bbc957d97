// The progress of a tool on standard error. On a terminal it is one bar, which
// is redrawn and removed at the end, also after an error. Otherwise it is a
// line per finished tenth, but none in the first ten seconds, so a quick tool
// prints nothing. A tool that prints its own lines gets a progress line only
// after ten seconds without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "parallel/base/terminal_style.h"

namespace headroom::tools {

class ToolProgress {
 public:
  struct Output {
    TerminalStyle style;
    // The tool prints a line per image, through above().
    bool has_own_lines = false;
    std::function<void(const std::string&)> write;
    std::function<double()> now;      // seconds
    std::function<size_t()> columns;  // 0 if the width is unknown
  };

  explicit ToolProgress(Output output = standard_error());
  ~ToolProgress() { clear(); }
  ToolProgress(const ToolProgress&) = delete;
  ToolProgress& operator=(const ToolProgress&) = delete;

  static Output standard_error();

  // Starts the phase `what`, of which `known` items are already done and do not
  // count for the rate. Does nothing in the phase `what`.
  void begin(const std::string& what, int64_t known);
  // One more of `total` images is done in the phase `what`. From any thread.
  void step(const std::string& what, int64_t total);
  // `done` of `total` items are done in the phase `what`; total may be 0
  // (unknown).
  void reach(const std::string& what, int64_t done, int64_t total,
             const std::string& noun = "image");

  // Removes the bar from the terminal before other output.
  void clear();
  // Calls `print`, which writes whole lines to the terminal, above the bar.
  void above(const std::function<void()>& print);

 private:
  // REQUIRES: mutex_ is held, for both functions.
  void change_to(const std::string& what, int64_t known, double began_at);
  void show(const std::string& what, int64_t done, int64_t total,
            const std::string& noun);

  const Output output_;
  const double started_at_;
  std::mutex mutex_;  // guards the following members
  std::string what_;
  int64_t done_ = 0;
  double began_at_ = 0;  // when the phase what_ began
  int64_t known_ = 0;    // items that were done before it began
  double said_at_ = 0;
  int64_t said_tenths_ = 0;
  std::string shown_;  // the bar on the terminal
};

}  // namespace headroom::tools
