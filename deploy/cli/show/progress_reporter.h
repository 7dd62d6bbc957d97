// ProgressReporter: what of a run's progress to print, and when.
//
// On a terminal there is one live line, rewritten in place, and one line that
// stays after each validation. Elsewhere (a log file) only lines that stay: an
// epoch's progress and validation, at most every 10 s, at least every minute.
// Warnings are printed as they come, but for a fault: when it ends the run, its
// words are the run's last line, and are not said twice.
//
// Threads: a value with state; one thread. Time is an argument.
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
    std::vector<std::string> lines;   // to stay
    std::optional<std::string> live;  // replaces the live line
  };

  explicit ProgressReporter(bool on_terminal) : on_terminal_(on_terminal) {}

  // `width` of the terminal in characters; 0: unknown.
  Output update(const wire::RunProgress& progress, size_t width,
                coordinator::TimePoint now);
  Output event(const wire::EventRecord& event, coordinator::TimePoint now);

 private:
  bool is_time_for_a_line(coordinator::TimePoint now, bool epoch_ended) const;

  Output warning(const wire::EventRecord& event);

  bool on_terminal_;
  std::vector<wire::EventRecord> faults_;  // not said yet
  EtaEstimate eta_;
  wire::RunProgress last_;
  int64_t last_printed_epoch_ = -1;
  std::optional<coordinator::TimePoint> last_line_;
};

}  // namespace headroom::cli
