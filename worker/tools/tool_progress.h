// The progress of a tool on standard error. On a terminal it is one bar, which
// is redrawn and removed at the end, also after an error. Otherwise it is a
// line per finished tenth, but none in the first ten seconds, so a quick tool
// prints nothing. A tool that prints its own lines gets a progress line only
// after ten seconds without one.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "parallel/base/progress.h"
#include "parallel/base/terminal.h"

namespace headroom::tools {

class ToolProgress {
 public:
  struct Output {
    Terminal::Output terminal;
    std::function<double()> now;  // seconds
    // The tool prints a line per image, through above().
    bool has_own_lines = false;
  };

  explicit ToolProgress(Output output = standard_error());
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
  void clear() { terminal_.clear_live(); }
  // Calls `print`, which writes whole lines to the terminal, above the bar.
  void above(const std::function<void()>& print);

 private:
  // REQUIRES: mutex_ is held, for both functions.
  void change_to(const std::string& what, int64_t known, double began_at);
  void show(const std::string& what, int64_t done, int64_t total,
            const std::string& noun);

  const Output output_;
  Terminal terminal_;
  const double started_at_;
  std::mutex mutex_;  // guards the following members
  std::string what_;
  int64_t done_ = 0;
  Pace pace_;  // of the phase what_
  double said_at_ = 0;
  int64_t said_tenths_ = 0;
};

}  // namespace headroom::tools
