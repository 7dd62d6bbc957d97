// `headroom val`: one validation of given weights, spread over all ranks.
#pragma once

#include "parallel/devices/compute_device.h"
#include "worker/coordinator_client.h"
#include "worker/run_outcome.h"

namespace headroom {

class Communicator;

// Collective. Rank 0 writes results.json, pictures, and what --save-txt and
// --save-json ask for into the run directory.
RunOutcome run_validation(const Assignment& assignment,
                          CoordinatorClient& client, Communicator& communicator,
                          const ComputeDevice& device);

}  // namespace headroom
