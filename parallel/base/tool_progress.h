// The progress of a tool on standard error. On a terminal it is one bar, which
// is redrawn and removed at the end, also after an error. Otherwise a line is
// printed for each finished tenth, but not in the first ten seconds, so a quick
// tool prints no progress. For a tool that prints its own lines, a progress
// line appears only after ten seconds without such a line.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "parallel/base/progress.h"
#include "parallel/base/terminal.h"

namespace headroom {

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
  // count for the rate. Has no effect if this phase has already started.
  void begin(const std::string& what, int64_t known);
  // Call it, from any thread, when one more of `total` images is done in the
  // phase `what`.
  void step(const std::string& what, int64_t total);
  // Call it when `done` of `total` items are done in the phase `what`. `total`
  // is 0 if unknown.
  void reach(const std::string& what, int64_t done, int64_t total,
             const std::string& noun = "image");

  // Removes the bar from the terminal before other output.
  void clear() { terminal_.clear_live(); }
  // Calls `print`, which writes whole lines to the terminal; they appear above
  // the bar.
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
  Pace pace_;  // the rate in the phase what_
  double said_at_ = 0;
  int64_t said_tenths_ = 0;
};

}  // namespace headroom
