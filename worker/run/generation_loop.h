// The life of a worker: join, get an assignment, do it, until told to leave.
//
// A generation that ends for want of memory is left: its tensors and
// connections are let go of, and the next assignment goes on from its
// checkpoint under another plan.
//
// The only place that catches a lost peer: the uncommitted step is dropped, the
// coordinator is told how far this worker has committed, and the next
// assignment says what to do with that state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/control/coordinator_client.h"
#include "worker/step/run_inputs.h"

namespace headroom::run {

// CrossGenerationState: what outlives a generation on a worker, for the next
// one.
//
// Ownership: a value; held by the generation loop, lent to one training run at
// a time. Threads: one.

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

struct WorkerOptions {
  std::string advertise_host = "127.0.0.1";  // where peers reach this worker
};

// Returns the worker's exit code.
int run_generations(control::CoordinatorClient& client,
                    const WorkerOptions& options);

}  // namespace headroom::run
