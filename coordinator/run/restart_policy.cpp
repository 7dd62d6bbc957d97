#include "coordinator/run/restart_policy.h"

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::coordinator {

bool ends_every_worker(int exit_code) {
  return exit_code == static_cast<int>(ExitCode::kRequest) ||
         exit_code == static_cast<int>(ExitCode::kNoPlan) ||
         exit_code == static_cast<int>(ExitCode::kData);
}

RestartDecision decide_restart(const WorkerEnd& end) {
  constexpr int kMostEnds = 5;
  constexpr int kCannotStart = 127;
  constexpr std::chrono::milliseconds kFirstDelay{250};
  RestartDecision decision;
  const std::string code = std::to_string(end.exit_code);
  if (end.is_draining) {
    decision.reason = "its node is to leave the run";
  } else if (ends_every_worker(end.exit_code)) {
    decision.reason = "exit code " + code + ": another would fare no better";
  } else if (end.exit_code == kCannotStart) {
    decision.reason = "its program cannot be started";
  } else if (end.ends_without_progress >= kMostEnds) {
    decision.is_crash_loop = true;
    decision.reason = cat("it has ended ", end.ends_without_progress,
                          " times in a row without a step between");
  } else {
    decision.restart = true;
    if (end.ends_without_progress > 1) {
      decision.delay = kFirstDelay * (1 << (end.ends_without_progress - 2));
    }
    decision.reason =
        end.ends_without_progress == 1
            ? "started again at once"
            : cat("started again in ", decision.delay.count(), " ms, time ",
                  end.ends_without_progress, " without a step between");
  }
  return decision;
}

}  // namespace headroom::coordinator
