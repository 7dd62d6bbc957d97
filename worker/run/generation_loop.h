// The life of a worker: join, receive an assignment, carry it out, until the
// assignment is to exit.
//
// If memory is short under a plan, the generation ends: its tensors and
// connections are released, and the next assignment continues from its
// checkpoint under another plan.
//
// This is the only place that catches what ends a generation, on this rank or
// another: a lost peer, a cut connection, a rank out of memory. It drops the
// uncommitted step, closes the connections so that peers fail too, and reports
// the committed step to the coordinator. The next assignment says what to do
// with the state: mostly to keep it as it is (keeps_state).
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
