// `headroom val`: one validation of given weights, spread over all ranks.
#pragma once

#include "worker/coordinator_client.h"
#include "worker/training_run.h"

namespace headroom {

class Communicator;

// Collective. Writes results.json into the run directory (rank 0).
RunOutcome run_validation(const Assignment& assignment,
                          CoordinatorClient& client, Communicator& communicator,
                          const ComputeDevice& device);

}  // namespace headroom
