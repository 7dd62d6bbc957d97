// Measures the speed of the network between a run's machines. One rank of each
// machine measures over the run's own connections, so no other port is opened
// and only ranks with the generation's secret take part.
//
// Machines are measured in pairs, all pairs of a round at the same time, with
// each machine in one pair. Up to 16 machines, every pair is measured once (a
// tournament); with more, each machine is paired with its neighbours and with
// one that is far away. A pair sends a few tiny messages in both directions,
// then messages of growing size in one direction until its share of the time is
// over.
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

// A number that identifies this machine's boot and network namespace: equal for
// processes that reach each other by loopback, different for others.
int64_t this_machine();

using MachinePairs = std::vector<std::pair<int, int>>;
inline constexpr int kMostMachinesOfAllPairs = 16;
// The rounds for `machines` machines; no machine is in two pairs of a round.
std::vector<MachinePairs> measuring_rounds(int machines);

// Measures for about `most` if all ranks answer. Returns nullopt if all ranks
// are on one machine. `interface` is the network interface of this rank's
// machine; the result names the interface of rank 0. Collective over all ranks,
// which must not share memory. Errors: CommunicationError.
std::optional<plan::NetworkRates> measure_network(
    Communicator& ranks, int64_t machine, const std::string& interface,
    std::chrono::milliseconds most = std::chrono::milliseconds(1500));

}  // namespace headroom::collectives
