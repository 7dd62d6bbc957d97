// Decides whether a worker that has ended gets a successor, and when.
//
//   exit code 2, 3, 4      the request or the data is wrong: never
//   127                    the program cannot be started: never
//   anything else          at once the first time; after 250 ms, 500 ms, 1 s
//                          if the slot's workers end again without a committed
//                          step between; the fifth such end is a crash loop,
//                          which ends the run
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace headroom::coordinator {

// The tag of every Error about a run's log. A coordinator that ends with this
// tag cannot continue from its log, so it is not restarted.
inline constexpr const char* kLogTag = "log";

struct WorkerEnd {
  int exit_code = 0;  // 128 + signal if killed by a signal
  // How many workers of this slot have ended, this one included, since the run
  // last committed a step.
  int ends_without_progress = 1;
  bool is_draining = false;  // its node is leaving the run
};

struct RestartDecision {
  bool restart = false;
  std::chrono::milliseconds delay{0};
  bool is_crash_loop = false;
  std::string reason;
};

RestartDecision decide_restart(const WorkerEnd& end);

// True for 2, 3 and 4: the request or the data is wrong, so every worker would
// end in the same way.
bool ends_every_worker(int exit_code);

// Counts the ends of one slot's workers, or of one process of the supervisor.
class RestartBudget {
 public:
  // `exit_code`: 128 + signal if killed. `steps`: committed steps of the run.
  RestartDecision note_end(int exit_code, int64_t steps,
                           bool is_draining = false) {
    if (steps > steps_) ends_ = 0;
    steps_ = steps;
    return decide_restart({exit_code, ++ends_, is_draining});
  }

 private:
  int ends_ = 0;
  int64_t steps_ = 0;
};

}  // namespace headroom::coordinator
