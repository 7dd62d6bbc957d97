// What `headroom status --watch` shows: the essentials of a run as text, drawn
// over in place on a terminal, and as lines of what is new on a pipe.
//
// Threads: one calls it. Time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_status.h"
#include "deploy/cli/show/progress_line.h"
#include "deploy/cli/show/progress_reporter.h"
#include "parallel/base/terminal_style.h"

namespace headroom::cli {

class StatusPage {
 public:
  explicit StatusPage(const TerminalStyle& style) : style_(style) {}

  // State and reason, progress, losses, the newest validation, the memory of
  // each rank, the newest five events. No line is wider than the terminal, and
  // no more lines than fit: of many ranks the fullest are shown.
  std::vector<std::string> lines(const coordinator::RunStatus& status,
                                 TerminalSize size, coordinator::TimePoint now);

  // What has happened since the last call: the state where it changed, each
  // event, and the progress after each tenth of an epoch or a validation.
  std::vector<std::string> news(const coordinator::RunStatus& status,
                                coordinator::TimePoint now);

 private:
  void note(const coordinator::RunStatus& status, coordinator::TimePoint now);
  std::string progress_text(const coordinator::RunStatus& status,
                            size_t columns) const;

  const TerminalStyle style_;
  EtaEstimate eta_;
  std::optional<double> eta_seconds_;
  std::optional<ValidatedEpoch> validated_;  // the newest that was seen
  std::string told_state_;
  int64_t told_sequence_ = 0;
  int64_t told_tenths_ = -1;  // tenths of epochs since the start
};

// "|██████░░░   |": measured bytes filled, then up to the predicted ones
// shaded; the end is the limit, where there is one.
std::string memory_cells(int64_t measured, int64_t predicted, int64_t limit,
                         size_t cells, const TerminalStyle& style);

// The lines as what rewrites a terminal from its upper left corner: each line
// replaces the old one, so that nothing flickers. The first time the screen is
// cleared.
std::string redraw(const std::vector<std::string>& lines, bool is_first);

}  // namespace headroom::cli
