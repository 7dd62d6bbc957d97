// RunStateSnapshot: converts RunState to a message and back. It holds what a
// restarted coordinator needs. Every field of the state has its line in
// run_state_snapshot.cpp; a new field of RunState needs one there.
//
// Times are not stored, because the clock starts anew with each process. When a
// state is restored, the last message of every member counts as just arrived,
// and each has `grace` beyond the usual limits to send their next message.
#pragma once

#include <chrono>

#include "coordinator/run/run_state.h"
#include "proto/coordinator_log.pb.h"

namespace headroom::coordinator {

class RunStateSnapshot {
 public:
  static wire::RunStateSnapshot of(const RunState& state);

  // REQUIRES: `state` is new. Throws Error (tag "wire", exit 2) if the image
  // cannot come from a coordinator.
  static void restore(RunState& state, const wire::RunStateSnapshot& image,
                      TimePoint now, std::chrono::milliseconds grace);

  // Progress since the snapshot is logged apart from it.
  static wire::RunProgress progress_of(const RunState& state) {
    return state.progress_;
  }

 private:
  // The fields that are written and read in the same way.
  template <typename Log, typename State>
  static void fields_of(Log& log, State& state);
};

}  // namespace headroom::coordinator
