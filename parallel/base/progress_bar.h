// A progress bar as one line of text.
//
//   train  45% |█████████▎          | 90/200 images  34.1/s  ETA 4s
//
// All of it is pure formatting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "parallel/base/terminal_style.h"

namespace headroom {

struct BarProgress {
  std::string label = {};  // "train"; may be empty
  int64_t done = 0;
  int64_t total = 0;  // 0 if unknown: only the count is shown
  std::string noun = "image";
  double per_second = 0;       // 0 if unknown
  std::string rate_unit = {};  // " img" makes "34.1 img/s"
  std::optional<double> seconds_left = {};
};

// Progress at the mean rate so far, for work that has taken `seconds`.
BarProgress mean_progress(const std::string& label, int64_t done, int64_t total,
                          double seconds);

// The line in at most `columns` columns; 0 means no limit. To fit a narrow
// terminal the bar is made shorter, then the rate, the time and the bar are
// dropped, and at last the line is cut.
std::string progress_bar(const BarProgress& progress, size_t columns,
                         const TerminalStyle& style);

// For logs: "train: 45 %, 90 of 200 images, 34.1/s, ETA 4s".
std::string progress_words(const BarProgress& progress);

// A bar of `cells` characters between its ends: "|████▌     |". REQUIRES: 0 <=
// share <= 1.
std::string bar_cells(double share, size_t cells, const TerminalStyle& style);

// "8s", "4m10s", "2h3m". Whole seconds, because milliseconds would flicker.
std::string whole_seconds(double seconds);

// "ETA 4m10s"; "" if it is unknown or below half a second.
std::string eta_words(std::optional<double> seconds);

}  // namespace headroom
