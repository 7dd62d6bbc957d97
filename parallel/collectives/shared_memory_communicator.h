// SharedMemoryCommunicator: ranks of one host sum, gather and scatter through
// memory that they share; what goes between two ranks alone takes the network.
//
// Sums are formed in rank order, each element by one rank, in parts of
// SharedGroup::kPartBytes; nothing else is allocated. An asynchronous sum is
// carried out by the ranks themselves in the first wait() or collective that
// follows: with all cores at work on backward, no thread could carry it out
// meanwhile without taking its time from them.
#pragma once

#include <chrono>
#include <memory>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

// `network` itself where its ranks cannot share memory: they are on several
// hosts, in several containers, or of several users. The same goes for the
// parts of a split(), each for itself.
//
// Collective over the ranks of `network`. `timeout` bounds each meeting of all
// ranks; it should be that of `network`.
std::unique_ptr<Communicator> share_memory(
    std::unique_ptr<Communicator> network, std::chrono::milliseconds timeout);

}  // namespace headroom::collectives
