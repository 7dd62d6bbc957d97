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
#include <string>

namespace headroom::coordinator {

struct WorkerEnd {
  int exit_code = 0;  // 128 + signal when killed by one
  // Of this slot, with this one, since the run last committed a step.
  int ends_without_progress = 1;
  bool is_draining = false;  // its node is to leave
};

struct RestartDecision {
  bool restart = false;
  std::chrono::milliseconds delay{0};
  bool is_crash_loop = false;
  std::string reason;  // in words
};

RestartDecision decide_restart(const WorkerEnd& end);

}  // namespace headroom::coordinator
