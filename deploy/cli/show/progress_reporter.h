// ProgressReporter: decides which lines of a run's progress are printed, and
// when.
//
// A terminal gets a table of epochs (epoch_table.h), whose header is repeated
// after 20 lines, and one live line below it. A log file gets a line for each
// epoch's training and one for its validation, in order, and a line per minute
// during a long epoch. The transfer of weights is reported in one line.
// Warnings are printed at once. A fault is printed too, unless it ends the run:
// its text is then the run's last line and is not printed twice.
//
// Threads: call the functions from one thread. Time is an argument.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_status.h"
#include "deploy/cli/show/epoch_table.h"
#include "parallel/base/terminal.h"

namespace headroom::cli {

class ProgressReporter {
 public:
  struct Output {
    std::optional<std::string> header;  // permanent, before `lines`
    std::vector<std::string> lines;     // permanent lines
    std::optional<std::string> live;    // replaces the live line
  };

  explicit ProgressReporter(const TerminalStyle& style) : style_(style) {}

  // `width` is the terminal's width in characters; 0 if unknown.
  Output update(const coordinator::RunStatus& status, size_t width,
                coordinator::TimePoint now);
  Output event(const wire::EventRecord& event, coordinator::TimePoint now);
  // Returns lines that were still waiting, at the end of the run.
  Output finish();

 private:
  bool on_terminal() const { return style_.rewrites_lines; }
  void put_header(int64_t num_epochs, const NamedLosses& losses,
                  Output& output);
  void put_epoch(Output& output);
  void note_on_terminal(const wire::EventRecord& event,
                        coordinator::TimePoint now, Output& output);
  bool is_time_for_a_line(const wire::RunProgress& progress,
                          coordinator::TimePoint now) const;

  TerminalStyle style_;
  size_t width_ = 0;
  Pace pace_;
  coordinator::RunStatus last_;
  std::optional<double> eta_seconds_;
  int64_t told_steps_ = 0;  // committed steps up to the newest printed epoch
  int64_t first_step_ = 0;  // the first step that was seen
  std::optional<coordinator::TimePoint> first_step_time_, last_line_;
  // On a terminal: a trained epoch whose line waits for its validation.
  std::optional<EpochLine> waiting_;
  int64_t waiting_step_ = 0;  // steps committed at the end of that epoch
  coordinator::TimePoint waiting_since_;
  std::string header_;  // the newest header that was shown
  int64_t lines_since_header_ = 0;
};

}  // namespace headroom::cli
