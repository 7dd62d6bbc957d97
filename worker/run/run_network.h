// The network between the ranks of a run: refuses addresses that others cannot
// reach before a rank waits for them, and measures the links once, at the
// start.
//
// Ranks measure it, not agents: only ranks are connected to each other; an
// agent knows the coordinator alone. So plan.json and later plans have the
// rates, the first plan does not.
#pragma once

#include <optional>
#include <string>

#include "parallel/base/key_value_store.h"
#include "parallel/collectives/communicator.h"
#include "parallel/plan/network_rates.h"
#include "worker/control/coordinator_client.h"

namespace headroom::run {

// Publishes that this rank has begun the generation, and its machine.
void say_here(KeyValueStore& store, int rank, int64_t machine);

// Throws Error (tag "network", exit 2) if this rank's address is a loopback
// address and another rank, by its say_here(), is on another machine.
// `machine`: this machine's number.
void check_address(KeyValueStore& store, int rank, int world_size,
                   const std::string& advertise_host, int64_t machine);

// Measures and reports the links in the first generation; returns nothing in
// later ones, and on one machine. Collective.
std::optional<plan::NetworkRates> network_at_start(
    const control::Assignment& assignment, const std::string& advertise_host,
    control::CoordinatorClient& client, collectives::Communicator& ranks);

}  // namespace headroom::run
