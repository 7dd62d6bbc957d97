// How fast the network between the machines of a run is, measured by one rank
// of each over the run's own connections, so that nothing else listens and only
// ranks with the generation's secret take part.
//
// Machines meet in pairs, all pairs of a round at the same time, each machine
// in one of them. Up to 16 machines every pair meets once (a tournament); more
// machines meet their neighbours, and one that is far away. A pair sends a few
// empty messages to and fro, then growing ones one way until its part of the
// time is over.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/plan/network_rates.h"

namespace headroom::collectives {

// A number of this machine's network and of its start: processes share it that
// reach each other by loopback, and no others do.
int64_t this_machine();

using MachinePairs = std::vector<std::pair<int, int>>;
inline constexpr int kMostMachinesOfAllPairs = 16;
// The rounds of so many machines; no machine is in two pairs of a round.
std::vector<MachinePairs> measuring_rounds(int machines);

// Takes about `most` at most where everybody answers. Nothing where all ranks
// are on one machine. `interface` is the network interface of this rank's
// machine; the first rank's is said. Collective over all ranks, which share
// memory of no kind. Errors: CommunicationError.
std::optional<plan::NetworkRates> measure_network(
    Communicator& ranks, int64_t machine, const std::string& interface,
    std::chrono::milliseconds most = std::chrono::milliseconds(1500));

}  // namespace headroom::collectives
