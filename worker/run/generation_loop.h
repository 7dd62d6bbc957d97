// The main loop of a worker: receives assignments and carries them out, until
// one has the action "exit".
//
// If memory is short under a plan, the generation ends: its tensors and
// connections are released, and the next assignment continues from its
// checkpoint under another plan.
//
// Only the loop catches failures that end a generation: a lost peer, a cut
// connection, too little memory on this or another rank. The loop drops the
// uncommitted step, closes the connections so that peers fail too, and reports
// the committed step to the coordinator. The next assignment decides whether
// the worker keeps its state (keeps_state); usually it does.
#pragma once

#include <string>

#include "parallel/machine/shared_file.h"
#include "worker/control/coordinator_client.h"
#include "worker/run/run_device.h"

namespace headroom::run {

struct WorkerOptions {
  // The host at which peers reach this worker.
  std::string advertise_host = "127.0.0.1";
  // The folder of the run's Unix sockets, which connect the ranks; "" if the
  // ranks connect by TCP.
  std::string socket_folder = {};
  AssignedCard card = {};
  std::string augment_program = {};  // the value of --augment-program
  SharedFiles shared = {};           // of this worker's agent
};

// Returns the worker's exit code.
int run_generations(control::CoordinatorClient& client,
                    const WorkerOptions& options);

}  // namespace headroom::run
