// The life of a worker: join, get an assignment, do it, until told to leave.
//
// A generation that ends for want of memory is left: its tensors and
// connections are released, and the next assignment goes on from its
// checkpoint under another plan.
//
// The only place that catches what ends a generation, on this rank or another:
// a lost peer, a cut connection, a rank out of memory. The uncommitted step is
// dropped, the connections are closed so that peers fail too, the coordinator
// is told how far this worker has committed, and the next assignment says what
// to do with that state: mostly to go on with it as it is (keeps_state).
#pragma once

#include <string>

#include "worker/control/coordinator_client.h"
#include "worker/run/run_device.h"

namespace headroom::run {

struct WorkerOptions {
  // The host at which peers reach this worker.
  std::string advertise_host = "127.0.0.1";
  // The folder of the run's Unix sockets, in which the ranks connect; "" where
  // they connect at their hosts.
  std::string socket_folder = {};
  AssignedCard card = {};
};

// Returns the worker's exit code.
int run_generations(control::CoordinatorClient& client,
                    const WorkerOptions& options);

}  // namespace headroom::run
