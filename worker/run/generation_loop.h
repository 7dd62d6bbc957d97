// The life of a worker: join, get an assignment, do it, until told to leave.
//
// A generation that ends for want of memory is left: its tensors and
// connections are released, and the next assignment goes on from its
// checkpoint under another plan.
//
// The only place that catches a lost peer: the uncommitted step is dropped, the
// coordinator is told how far this worker has committed, and the next
// assignment says what to do with that state.
#pragma once

#include <string>

#include "worker/control/coordinator_client.h"
#include "worker/run/run_device.h"

namespace headroom::run {

struct WorkerOptions {
  // The host at which peers reach this worker.
  std::string advertise_host = "127.0.0.1";
  AssignedCard card = {};
};

// Returns the worker's exit code.
int run_generations(control::CoordinatorClient& client,
                    const WorkerOptions& options);

}  // namespace headroom::run
