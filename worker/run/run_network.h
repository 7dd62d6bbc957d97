// The network between the ranks of a run: addresses that others cannot reach
// are refused before anybody waits for them, and what the links do is measured
// once, at the start.
//
// The ranks measure it rather than the agents: they have connections that only
// the run's ranks can open, and a place to meet; an agent knows the coordinator
// alone. So rates are there for plan.json and for every later plan, not for the
// first.
#pragma once

#include <optional>
#include <string>

#include "parallel/base/key_value_store.h"
#include "parallel/collectives/communicator.h"
#include "parallel/plan/network_rates.h"
#include "worker/control/coordinator_client.h"

namespace headroom::run {

// Says that this rank has begun the generation, and on which machine it is.
void say_here(KeyValueStore& store, int rank, int64_t machine);

// Asks what all ranks said with say_here(), where it matters.
// Throws Error (tag "network", exit 2) where this rank's address is of loopback
// and another rank is on another machine. `machine` is this one's number.
void check_address(KeyValueStore& store, int rank, int world_size,
                   const std::string& advertise_host, int64_t machine);

// Measures the links of the first generation and says so; nothing in later
// ones, and on one machine. Collective.
std::optional<plan::NetworkRates> network_at_start(
    const control::Assignment& assignment, const std::string& advertise_host,
    control::CoordinatorClient& client, collectives::Communicator& ranks);

}  // namespace headroom::run
