// RunStateSnapshot: converts the parts of RunState that a restarted coordinator
// needs to a message and back. Every field of RunState needs a line in
// run_state_snapshot.cpp.
//
// Times are not stored, because each process starts its own clock. After a
// restore, the last message of every member counts as just arrived, and each
// member has `grace` beyond the usual limits for its next message.
#pragma once

#include <chrono>

#include "coordinator/run/run_state.h"
#include "proto/coordinator_log.pb.h"

namespace headroom::coordinator {

class RunStateSnapshot {
 public:
  static wire::RunStateSnapshot of(const RunState& state);

  // REQUIRES: `state` is new. Throws Error (tag "wire", exit 2) if `image` has
  // values that no coordinator writes.
  static void restore(RunState& state, const wire::RunStateSnapshot& image,
                      TimePoint now, std::chrono::milliseconds grace);

  // Returns the current progress, which the log stores in separate records.
  static wire::RunProgress progress_of(const RunState& state) {
    return state.progress_;
  }

 private:
  // Fields that are written and read in the same way.
  template <typename Log, typename State>
  static void fields_of(Log& log, State& state);
};

}  // namespace headroom::coordinator
