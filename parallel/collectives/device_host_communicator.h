// DeviceHostCommunicator: ranks that exchange tensors of the host and of
// devices.
//
// Tensors of the host go to the host's communicator. A device's go to the
// communicator of devices where there is one (NCCL), messages excepted: the
// pipeline's and the halo's orders would deadlock there. Everything else passes
// through the host: copied there, exchanged, copied back when it is waited for.
//
// Ownership: owns both. Threads, errors: as theirs.
#pragma once

#include <memory>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

// `devices` may be null; else it has the same ranks in the same order.
std::unique_ptr<Communicator> make_placed_communicator(
    std::unique_ptr<Communicator> host, std::unique_ptr<Communicator> devices);

}  // namespace headroom::collectives
