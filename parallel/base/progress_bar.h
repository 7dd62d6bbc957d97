// The bar of something that goes on, in one line of text.
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
  std::string label = {};  // "train"; "" for none
  int64_t done = 0;
  int64_t total = 0;  // 0 where nobody knows: then there is a count alone
  std::string noun = "image";
  double per_second = 0;       // 0 where it is not known
  std::string rate_unit = {};  // " img" makes "34.1 img/s"
  std::optional<double> seconds_left = {};
};

// Progress at the mean rate of the seconds so far.
BarProgress mean_progress(const std::string& label, int64_t done, int64_t total,
                          double seconds);

// Fits into `columns`, 0 for any number: a narrow terminal has a shorter bar,
// then no rate, then no time, then no bar, then a line that is cut.
std::string progress_bar(const BarProgress& progress, size_t columns,
                         const TerminalStyle& style);

// The same as words, for logs: "train: 45 %, 90 of 200 images, 34.1/s, ETA 4s".
std::string progress_words(const BarProgress& progress);

// "|████▌     |" of so many cells between its ends. REQUIRES: 0 <= share <= 1.
std::string bar_cells(double share, size_t cells, const TerminalStyle& style);

// "8s", "4m10s", "2h3m": whole seconds, for milliseconds would flicker.
std::string whole_seconds(double seconds);

// "ETA 4m10s"; "" where it rounds to nothing, or is not known.
std::string eta_words(std::optional<double> seconds);

}  // namespace headroom
