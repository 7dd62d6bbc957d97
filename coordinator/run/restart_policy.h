// restart_policy: whether a worker that has ended gets a successor, and when.
//
//   2, 3, 4                what is wrong is the request or the data: never
//   127                    its program cannot be started: never
//   anything else          at once the first time; 250 ms, 500 ms, 1 s later
//                          each further time that no step was committed since;
//                          the fifth such end is a crash loop, which ends the
//                          run
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace headroom::coordinator {

// The tag of every Error of a run's log. A coordinator that ends with it has
// nothing to go on from: it is not started again.
inline constexpr const char* kLogTag = "log";

struct WorkerEnd {
  int exit_code = 0;  // 128 + signal when killed by one
  // How often this slot's worker has ended, this time included, since the run
  // last committed a step.
  int ends_without_progress = 1;
  bool is_draining = false;  // its node is to leave
};

struct RestartDecision {
  bool restart = false;
  std::chrono::milliseconds delay{0};
  bool is_crash_loop = false;
  std::string reason;
};

RestartDecision decide_restart(const WorkerEnd& end);

// 2, 3, 4: what is wrong is the request or the data, so that no other worker
// would fare better.
bool ends_every_worker(int exit_code);

// The ends of one slot's workers, or of one process of the supervisor.
class RestartBudget {
 public:
  // `exit_code`: 128 + the signal. `steps`: as many as the run is known to have
  // committed.
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
