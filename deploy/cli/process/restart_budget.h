// RestartBudget: whether a process that the supervisor lost is started again,
// and when, by the rule for workers (coordinator/run/restart_policy.h): at
// once, later each time that the run has committed no step since, and not for
// the fifth such time.
//
// Threads: none; a value without a clock.
#pragma once

#include <cstdint>

#include "coordinator/run/restart_policy.h"

namespace headroom::cli {

class RestartBudget {
 public:
  // `exit_code`: 128 + the signal. `steps`: as many as the run is known to have
  // committed.
  coordinator::RestartDecision note_end(int exit_code, int64_t steps) {
    if (steps > steps_) ends_ = 0;
    steps_ = steps;
    return coordinator::decide_restart(
        {exit_code, ++ends_, /*is_draining=*/false});
  }

 private:
  int ends_ = 0;
  int64_t steps_ = 0;
};

}  // namespace headroom::cli
