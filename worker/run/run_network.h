// The network between the ranks of a run: refuses unreachable addresses before
// a rank waits for them, and measures the links once, at the start.
//
// Ranks measure the links, because only ranks are connected to each other;
// agents are connected only to the coordinator. So the first plan is made
// without the rates; plan.json and later plans have them.
#pragma once

#include <optional>
#include <string>

#include "parallel/base/key_value_store.h"
#include "parallel/collectives/communicator.h"
#include "parallel/plan/network_rates.h"
#include "worker/control/coordinator_client.h"

namespace headroom::run {

// Publishes this rank's machine, and that it has begun the generation.
void say_here(KeyValueStore& store, int rank, int64_t machine);

// Throws Error (tag "network", exit 2) if this rank's address is a loopback
// address and another rank has published (say_here) that it runs on another
// machine. `machine` is this rank's machine.
void check_address(KeyValueStore& store, int rank, int world_size,
                   const std::string& advertise_host, int64_t machine);

// Measures and reports the links in the first generation. Returns nullopt in
// later generations, and on one machine. Collective.
std::optional<plan::NetworkRates> network_at_start(
    const control::Assignment& assignment, const std::string& advertise_host,
    control::CoordinatorClient& client, collectives::Communicator& ranks);

}  // namespace headroom::run
