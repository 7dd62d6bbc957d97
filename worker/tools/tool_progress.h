// How far a tool has come, on standard error: on a terminal one bar that is
// written over and goes away at the end, also where an error ends the tool;
// elsewhere a line for every tenth that is done, so that what is quick says
// nothing. A tool that prints lines of its own there says how far it is only
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
    // The tool prints a line for every image, by above().
    bool has_own_lines = false;
    std::function<void(const std::string&)> write;
    std::function<double()> now;      // seconds
    std::function<size_t()> columns;  // 0 where the width is not known
  };

  explicit ToolProgress(Output output = standard_error());
  ~ToolProgress() { clear(); }
  ToolProgress(const ToolProgress&) = delete;
  ToolProgress& operator=(const ToolProgress&) = delete;

  static Output standard_error();

  // Goes on with `what`, of which so many are known: they have no part in its
  // rate. Nothing changes where it is at `what` already.
  void begin(const std::string& what, int64_t known);
  // One more of `total` images has gone through `what`. From any thread.
  void step(const std::string& what, int64_t total);
  // So many of `total` images, or other things, have gone through it; a total
  // of 0 is not known.
  void reach(const std::string& what, int64_t done, int64_t total,
             const std::string& noun = "image");

  // Takes the bar from the terminal, before something else is printed.
  void clear();
  // Runs `print`, which writes whole lines to the terminal, above the bar.
  void above(const std::function<void()>& print);

 private:
  // REQUIRES: mutex_ is held, for both.
  void change_to(const std::string& what, int64_t known, double began_at);
  void show(const std::string& what, int64_t done, int64_t total,
            const std::string& noun);

  const Output output_;
  const double started_at_;
  std::mutex mutex_;  // guards what follows
  std::string what_;
  int64_t done_ = 0;
  double began_at_ = 0;  // the time at which what_ began
  int64_t known_ = 0;    // its part that was known then
  double said_at_ = 0;
  int64_t said_tenths_ = 0;
  std::string shown_;  // the bar that is on the terminal
};

}  // namespace headroom::tools
