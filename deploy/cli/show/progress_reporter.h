// ProgressReporter: what of a run's progress to print, and when.
//
// Each epoch has its lines, of training and of validation, in order. Besides, a
// terminal has one live line, rewritten in place; elsewhere (a log file) an
// epoch that takes long has a line a minute. What was transferred from weights
// is a line.
// Warnings are printed as they come, but for a fault: when it ends the run, its
// words are the run's last line, and are not said twice.
//
// Threads: one calls it. Time is an argument.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/run_status.h"

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
    std::vector<std::string> lines;   // lines that stay
    std::optional<std::string> live;  // replaces the live line
  };

  explicit ProgressReporter(bool on_terminal) : on_terminal_(on_terminal) {}

  // `width` of the terminal in characters; 0: unknown.
  Output update(const coordinator::RunStatus& status, size_t width,
                coordinator::TimePoint now);
  Output event(const wire::EventRecord& event, coordinator::TimePoint now);

 private:
  bool is_time_for_a_line(const wire::RunProgress& progress,
                          coordinator::TimePoint now) const;

  bool on_terminal_;
  EtaEstimate eta_;
  coordinator::RunStatus last_;
  std::optional<double> eta_seconds_;
  int64_t told_steps_ = 0;  // up to the end of the newest epoch with its line
  int64_t first_step_ = 0;  // the first that was seen
  std::optional<coordinator::TimePoint> first_step_time_, last_line_;
};

}  // namespace headroom::cli
