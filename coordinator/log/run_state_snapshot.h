// RunStateSnapshot: RunState as a message and back, field by field: what a
// coordinator that is started again has to know. Every field of the state has
// its line in run_state_snapshot.cpp.
//
// Times are not kept: clocks start anew with the process. Whoever was there
// counts as heard when the state is restored, and has `grace` on top of the
// usual time to be heard again.
#pragma once

#include <chrono>

#include "coordinator/run/run_state.h"
#include "proto/coordinator_log.pb.h"

namespace headroom::coordinator {

class RunStateSnapshot {
 public:
  static wire::RunStateSnapshot of(const RunState& state);

  // REQUIRES: `state` is new. Throws Error (tag "wire", exit 2) if the image is
  // none that a coordinator writes.
  static void restore(RunState& state, const wire::RunStateSnapshot& image,
                      TimePoint now, std::chrono::milliseconds grace);

  // What was committed since.
  static wire::RunProgress progress_of(const RunState& state) {
    return state.progress_;
  }

 private:
  // What is written and read alike.
  template <typename Log, typename State>
  static void fields_of(Log& log, State& state);
};

}  // namespace headroom::coordinator
