// RecentSteps: the steps in the last 4 MiB of steps.jsonl, which another
// process may still be writing. Each line is read once.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

#include "deploy/records/line_follower.h"

namespace headroom::records {

class RecentSteps {
 public:
  explicit RecentSteps(const std::filesystem::path& run_directory);

  // Reads the lines that were written since the last call.
  void refresh();

  // The line of the newest step, without its list of samples; "" if there is
  // none.
  const std::string& last_line() const { return last_line_; }
  // The median of the images per second; NaN without a step. It is a median
  // because a step that waits for a checkpoint or an image is slow.
  double median_speed() const;

 private:
  struct Line {
    size_t bytes = 0;
    double images_per_second = 0;  // NaN if the line has none
  };
  void forget();
  void take(std::string_view text);

  LineFollower follower_;
  std::deque<Line> lines_;
  size_t bytes_ = 0;  // of lines_
  std::string last_line_;
};

// The median speed of a run, read once.
double median_speed(const std::filesystem::path& run_directory);

}  // namespace headroom::records
