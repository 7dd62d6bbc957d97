// The one place that picks a communicator's backend.
#pragma once

#include <memory>
#include <string>

#include "parallel/base/key_value_store.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/gloo_communicator.h"
#include "parallel/plan/plan.h"

namespace headroom::collectives {

// The communicator of all ranks of a generation. kAuto is Gloo, also under
// mpirun: MPI's fail-stop must be asked for. With Gloo, ranks of one host sum
// through memory that they share (shared_memory_communicator.h). A group of one
// needs no backend. kNccl is Gloo here: the host's part of it
// (device_host_communicator.h). Collective over all ranks; see the backends'
// headers for the arguments (MPI uses neither store nor prefix) and errors.
std::unique_ptr<Communicator> make_communicator(
    plan::Backend backend, std::shared_ptr<KeyValueStore> store,
    const std::string& prefix, int rank, int size,
    const GlooOptions& options = {});

}  // namespace headroom::collectives
