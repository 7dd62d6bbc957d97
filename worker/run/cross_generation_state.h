// CrossGenerationState: what outlives a generation on a worker, for the next
// one.
//
// Ownership: a value; held by the generation loop, lent to one training run at
// a time. Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/step/run_inputs.h"

namespace headroom::run {

struct CrossGenerationState {
  // The same in every generation: reading a data set's labels takes its time.
  std::shared_ptr<step::RunInputs> inputs;
  // Committed states, or parts of them: of the last generation until the next
  // one has a state of its own.
  std::vector<checkpoint::HostStateSnapshot> held;

  int64_t newest_step() const {
    int64_t newest = 0;
    for (const checkpoint::HostStateSnapshot& state : held) {
      newest = std::max(newest, state.counters.committed_steps);
    }
    return newest;
  }
};

}  // namespace headroom::run
