// Formats a run for `headroom status --watch`: on a terminal a page that is
// redrawn in place, on a pipe only lines with news.
//
// Threads: call the functions from one thread. Time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_status.h"
#include "deploy/cli/show/progress_line.h"
#include "parallel/base/terminal.h"

namespace headroom::cli {

class StatusPage {
 public:
  explicit StatusPage(const TerminalStyle& style) : style_(style) {}

  // The page: state and reason, progress, losses, the newest validation, each
  // rank's memory and the newest five events. It fits into the terminal: if
  // there are too many ranks, those that use most memory are shown.
  std::vector<std::string> lines(const coordinator::RunStatus& status,
                                 TerminalSize size, coordinator::TimePoint now);

  // Lines for the news since the last call: a changed state, each event, and
  // the progress after each tenth of an epoch or validation.
  std::vector<std::string> news(const coordinator::RunStatus& status,
                                coordinator::TimePoint now);

 private:
  void note(const coordinator::RunStatus& status, coordinator::TimePoint now);

  const TerminalStyle style_;
  Pace pace_;
  std::optional<double> eta_seconds_;
  // The newest validation that was seen.
  std::optional<ValidatedEpoch> validated_;
  std::string told_state_;
  int64_t told_sequence_ = 0;
  int64_t told_tenths_ = -1;  // tenths of epochs since the start
};

// "|██████░░░   |": filled up to the measured bytes, shaded up to the predicted
// bytes. The bar's end is the limit, if there is one.
std::string memory_cells(int64_t measured, int64_t predicted, int64_t limit,
                         size_t cells, const TerminalStyle& style);

// Makes the text that redraws a terminal from its upper left corner. Each line
// overwrites the old one, so nothing flickers; the first time the screen is
// cleared.
std::string redraw(const std::vector<std::string>& lines, bool is_first);

}  // namespace headroom::cli
