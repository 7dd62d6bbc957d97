// StepHistory: the steps of steps.jsonl for pictures, in bounded memory.
//
// The file is followed as it grows (records/line_follower.h). Steps that a
// restarted run repeats replace the earlier ones. Lines that are no steps are
// left out.
//
// Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>
#include <vector>

#include "deploy/page/decimated_series.h"
#include "deploy/records/line_follower.h"

namespace headroom::page {

// The names of a step's values; the column "step" precedes them. A loss that
// the run does not have is NaN.
inline constexpr std::array kStepColumns = {
    "epoch", "box",       "obj", "cls",
    "dfl",   "grad_norm", "lr",  "images_per_second"};

class StepHistory {
 public:
  explicit StepHistory(const std::filesystem::path& run_directory);

  // Reads the lines that were written since the last call.
  void refresh();

  // The columns of memory(): predicted and measured bytes.
  enum MemoryColumn { kPredicted, kMeasured };

  const DecimatedSeries& steps() const { return steps_; }
  const std::map<int, DecimatedSeries>& memory() const { return memory_; }
  int64_t num_steps() const { return num_steps_; }          // committed so far
  int64_t epoch_samples() const { return epoch_samples_; }  // 0 if unknown

 private:
  void forget();
  void take(std::string_view text);
  DecimatedSeries& memory_of(int rank);

  records::LineFollower follower_;
  DecimatedSeries steps_;
  std::map<int, DecimatedSeries> memory_;  // one series per rank
  int64_t num_steps_ = 0;
  int64_t epoch_samples_ = 0;
};

}  // namespace headroom::page
