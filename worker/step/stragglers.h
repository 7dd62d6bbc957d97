// Stragglers: finds ranks whose card or processor is slower than those of their
// peers, from the time of the passes that the ranks report.
//
// Peers are the ranks that do the same work with other images: those of the
// data axis. A rank's factor is its time for an image divided by the median of
// its peers. The rank is slow if the median of its last kReports factors is
// above kSlow, and no longer slow if it is below kSwift. Pure.
//
// A weakness: a rank that shares its machine's memory or its power with other
// programs is slow, too, and named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/layout.h"

namespace headroom::step {

class Stragglers {
 public:
  // Smaller values name a rank earlier, and name more ranks wrongly.
  static constexpr double kSlow = 1.2;
  static constexpr double kSwift = 1.1;
  static constexpr size_t kReports = 5;
  // A report is the mean time of so many steps.
  static constexpr int64_t kSteps = 5;

  struct News {
    bool is_slow = false;  // false: it was slow and is so no longer
    std::string reason;
  };

  // News about `rank`, which is the rank of this process.
  Stragglers(const plan::ParallelLayout& layout, int rank);

  // `seconds`: the time of each rank for an image; 0 if it could not measure.
  std::optional<News> note(const std::vector<double>& seconds);

 private:
  const int rank_;
  std::vector<size_t> peers_;
  std::vector<double> factors_;  // the newest ones since is_slow_ changed
  bool is_slow_ = false;
};

}  // namespace headroom::step
