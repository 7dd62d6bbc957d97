// ProgressReporter: what of a run's progress to print, and when.
//
// A terminal has a table of epochs (epoch_table.h), whose header comes again
// after 20 of them, and one live line below it, rewritten in place. Elsewhere
// (a log file) each epoch has its lines, of training and of validation, in
// order, and an epoch that takes long has a line a minute. What was transferred
// from weights is a line. Warnings are printed as they come, but for a fault:
// when it ends the run, its words are the run's last line, and are not said
// twice.
//
// Threads: one calls it. Time is an argument.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_status.h"
#include "deploy/cli/show/epoch_table.h"
#include "parallel/base/terminal_style.h"

namespace headroom::cli {

// How much longer, from the steps seen so far, validation included.
class EtaEstimate {
 public:
  std::optional<double> update(const wire::RunProgress& progress,
                               coordinator::TimePoint now);

 private:
  std::optional<coordinator::TimePoint> first_time_;
  int64_t first_step_ = 0;
};

class ProgressReporter {
 public:
  struct Output {
    std::optional<std::string> header;  // stays, before the lines
    std::vector<std::string> lines;     // lines that stay
    std::optional<std::string> live;    // replaces the live line
  };

  explicit ProgressReporter(const TerminalStyle& style) : style_(style) {}

  // `width` of the terminal in characters; 0: unknown.
  Output update(const coordinator::RunStatus& status, size_t width,
                coordinator::TimePoint now);
  Output event(const wire::EventRecord& event, coordinator::TimePoint now);
  // What is still held back, at the end.
  Output finish();

 private:
  bool on_terminal() const { return style_.rewrites_lines; }
  void put_epoch(Output& output);
  void note_on_terminal(const wire::EventRecord& event,
                        coordinator::TimePoint now, Output& output);
  bool is_time_for_a_line(const wire::RunProgress& progress,
                          coordinator::TimePoint now) const;

  TerminalStyle style_;
  size_t width_ = 0;
  EtaEstimate eta_;
  coordinator::RunStatus last_;
  std::optional<double> eta_seconds_;
  int64_t told_steps_ = 0;  // up to the end of the newest epoch with its line
  int64_t first_step_ = 0;  // the first that was seen
  std::optional<coordinator::TimePoint> first_step_time_, last_line_;
  // A trained epoch whose line waits for its validation, on a terminal.
  std::optional<EpochLine> waiting_;
  int64_t waiting_step_ = 0;  // the steps that were committed at its end
  coordinator::TimePoint waiting_since_;
  std::string header_;  // the newest that was shown
  int64_t lines_since_header_ = 0;
};

}  // namespace headroom::cli
