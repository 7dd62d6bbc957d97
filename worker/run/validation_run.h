// `headroom val`: one validation of given weights, spread over all ranks.
#pragma once

#include "parallel/devices/compute_device.h"
#include "worker/control/coordinator_client.h"
#include "worker/run/run_end.h"

namespace headroom::collectives {
class Communicator;
}

namespace headroom::run {

// Collective. `shared_index`: SharedFiles::index. Rank 0 writes results.json,
// pictures, and the files of --save-txt and --save-json into the run directory.
RunOutcome run_validation(const control::Assignment& assignment,
                          control::CoordinatorClient& client,
                          collectives::Communicator& communicator,
                          const devices::ComputeDevice& device,
                          int shared_index);

}  // namespace headroom::run
