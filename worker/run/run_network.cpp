#include "worker/run/run_network.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/collectives/network_measurement.h"
#include "parallel/network/network_interfaces.h"
#include "parallel/plan/plan_json.h"

namespace headroom::run {
namespace {

// How long to wait until a rank has published its machine, which ranks do
// before they connect.
constexpr std::chrono::seconds kPatience{60};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

void say_here(KeyValueStore& store, int rank, int64_t machine) {
  store.set(cat("here/", rank), std::to_string(machine));
}

void check_address(KeyValueStore& store, int rank, int world_size,
                   const std::string& advertise_host, int64_t machine) {
  const std::string here = std::to_string(machine);
  if (!is_loopback(advertise_host)) return;
  const std::vector<std::string> machines =
      store.get_all("here/", world_size, kPatience);
  const auto elsewhere = std::ranges::find_if(
      machines, [&](const auto& one) { return one != here; });
  if (elsewhere == machines.end()) return;
  throw Error("network",
              cat("rank ", rank, " would wait for its peers at ",
                  advertise_host, ", which rank ", elsewhere - machines.begin(),
                  " on another machine cannot reach: the coordinator's name "
                  "stands for loopback here"),
              "take the name out of the lines of 127.* in /etc/hosts, or give "
              "--interface NAME or the coordinator's address (here: " +
                  interfaces_text(network_interfaces()) + ")");
}

std::optional<plan::NetworkRates> network_at_start(
    const control::Assignment& assignment, const std::string& advertise_host,
    control::CoordinatorClient& client, collectives::Communicator& ranks) {
  if (assignment.generation != 1 || assignment.has_one_agent ||
      assignment.world_size == 1) {
    return std::nullopt;
  }
  const auto rates = collectives::measure_network(
      ranks, collectives::this_machine(),
      interface_with(advertise_host, network_interfaces()));
  if (rates && assignment.rank == 0) {
    client.report_event({.event = EventKind::kNetwork,
                         .step = 0,
                         .rank = -1,
                         .reason = plan::network_text(*rates),
                         .detail_json = plan::network_object(*rates).dump()});
  }
  return rates;
}

}  // namespace headroom::run
