// LocalCommunicator: N ranks as N threads of one process, for unit tests.
//
// Sums are formed in rank order by whichever rank arrives last, so they repeat
// bit for bit. send() returns when its message was received: a schedule that
// relies on buffering deadlocks here, as it would elsewhere under load.
//
// Ownership: each communicator belongs to one thread. Destroying it is how a
// rank dies: peers that wait for it get CommunicationError at once.
// Errors: CommunicationError after `timeout` in one operation; the group is
// unusable from then on.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

// One communicator per rank, in rank order. REQUIRES: size > 0.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    int size, std::chrono::milliseconds timeout = std::chrono::seconds(30));

}  // namespace headroom::collectives
