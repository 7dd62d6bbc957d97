// Progress of counted work: its value, its measured pace, and its text.
//
//   train  45% |█████████▎          | 90/200 images  34.1/s  ETA 4s
//
// All displays of progress use these functions: the bar of the tools, the table
// of epochs, the page of `status --watch` and the lines in logs. All but
// ToolProgress are pure; time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "parallel/base/terminal.h"

namespace headroom {

// The noun for sizes: "1.2 MiB/3.9 MiB  2.1 MiB/s".
inline constexpr const char* kBytes = "byte";

struct Progress {
  std::string label = {};  // "train"; may be empty
  int64_t done = 0;
  int64_t total = 0;           // 0 if unknown: only the count is shown
  std::string noun = "image";  // kBytes: numbers are shown as sizes
  double per_second = 0;       // 0 if unknown
  std::string rate_unit = {};  // " img" makes "34.1 img/s"
  std::optional<double> seconds_left = {};

  // The completed tenths of the total; 0 if the total is unknown.
  int64_t tenths() const { return total > 0 ? 10 * done / total : 0; }
};

// Pace: the mean rate of counted work since the first note().
class Pace {
 public:
  // Notes that `done` units are done at `now`, in seconds of any clock. The
  // first call only marks the start: units that were done before, for example
  // by the run that this one resumes, do not count for the rate. If `done` is
  // lower than before, as after a recovery from a checkpoint, the units that
  // are done again count twice.
  void note(int64_t done, double now);

  double per_second() const;  // 0 if unknown
  // nullopt if the rate is unknown, or if `total` is 0 (unknown).
  std::optional<double> seconds_left(int64_t total) const;
  // The newest note as a Progress without label.
  Progress of(int64_t total) const;

 private:
  struct Note {
    int64_t done = 0;
    double at = 0;
  };
  std::optional<Note> first_;
  Note newest_;
};

// The line in at most `columns` columns; 0 means no limit. To fit a narrow
// terminal the bar is made shorter, then the rate, the time and the bar are
// dropped, and at last the line is cut.
std::string progress_bar(const Progress& progress, size_t columns,
                         const TerminalStyle& style);

// For logs: "train: 45 %, 90 of 200 images, 34.1/s, ETA 4s".
std::string progress_words(const Progress& progress);

// How many cells a bar can have in a line of `columns` columns (0 means no
// limit) if other text takes `taken` columns; 0 if there is too little room.
size_t bar_room(size_t columns, size_t taken);

// A bar of `cells` characters between its ends: "|████▌     |". REQUIRES: 0 <=
// share <= 1.
std::string bar_cells(double share, size_t cells, const TerminalStyle& style);
// A bar with `filled` whole cells and `shaded` ones after them: "|███░░  |".
std::string shaded_cells(size_t filled, size_t shaded, size_t cells,
                         Colour colour, const TerminalStyle& style);

// "8s", "4m10s", "2h3m". Whole seconds, because milliseconds would flicker.
std::string whole_seconds(double seconds);

// "ETA 4m10s"; "" if the time is unknown or below half a second.
std::string eta_words(std::optional<double> seconds);

// ToolProgress: the progress of a command on standard error. On a terminal it
// is one bar, which is redrawn and removed at the end, also after an error.
// Otherwise a line is printed for each finished tenth, but not in the first ten
// seconds, so a quick tool prints no progress. For a tool that prints its own
// lines, a progress line appears only after ten seconds without such a line.
class ToolProgress {
 public:
  struct Output {
    Terminal::Output terminal;
    std::function<double()> now;  // seconds
    // The tool prints a line per image, through above().
    bool has_own_lines = false;
  };

  explicit ToolProgress(Output output = standard_error());
  ToolProgress(const ToolProgress&) = delete;
  ToolProgress& operator=(const ToolProgress&) = delete;

  static Output standard_error();

  // Starts the phase `what`. `known` of its items are already done, and do not
  // count for the rate. Has no effect if this phase has already started.
  void begin(const std::string& what, int64_t known);
  // Call it, from any thread, when one more of `total` images is done in the
  // phase `what`.
  void step(const std::string& what, int64_t total);
  // Call it when `done` of `total` items are done in the phase `what`. `total`
  // is 0 if unknown.
  void reach(const std::string& what, int64_t done, int64_t total,
             const std::string& noun = "image");

  // Removes the bar from the terminal before other output.
  void clear() { terminal_.clear_live(); }
  // Calls `print`, which writes whole lines to the terminal; they appear above
  // the bar.
  void above(const std::function<void()>& print);

 private:
  // REQUIRES: mutex_ is held, for both functions.
  void change_to(const std::string& what, int64_t known, double began_at);
  void show(const std::string& what, int64_t done, int64_t total,
            const std::string& noun);

  const Output output_;
  Terminal terminal_;
  const double started_at_;
  std::mutex mutex_;  // guards the following members
  std::string what_;
  int64_t done_ = 0;
  Pace pace_;  // the rate in the phase what_
  double said_at_ = 0;
  int64_t said_tenths_ = 0;
};

}  // namespace headroom
