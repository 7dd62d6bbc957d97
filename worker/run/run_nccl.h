// Measures NCCL's speed when a run starts: all-reduces of 64 MiB over all
// ranks, and over the ranks of each machine.
//
// If NCCL does not find the fast network, it silently uses TCP. The reported
// rate shows this to the user, and a warning if the rate is far below the
// catalogue's rate for such machines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "parallel/devices/compute_device.h"
#include "parallel/plan/network_rates.h"
#include "worker/control/coordinator_client.h"

namespace headroom::run {

struct NcclRates {
  std::string transport;  // network between machines: "AWS Libfabric"
  int64_t machines = 1;
  int64_t cards_of_machine = 1;  // on the machine with the most cards
  // Bytes per second over the slowest link, counted as 2 (n - 1) / n of the
  // bytes of an all-reduce (NCCL's "bus bandwidth"); 0 without such a link.
  double between_machines = 0;
  double inside_machine = 0;
};

// "NCCL: AWS Libfabric, 41 GB/s between machines, 370 GB/s inside".
std::string nccl_rates_text(const NcclRates& rates);

// The lowest rates that the catalogue lists for machines with that number of
// these cards; 0 if it lists no such machine.
struct CataloguedRates {
  std::string machine;  // "AWS p5.48xlarge"
  double between_machines = 0, inside_machine = 0;
};
CataloguedRates catalogued_rates(const std::string& card, int64_t cards);

// A warning if a rate is below a tenth of the catalogue's, otherwise "".
std::string slow_nccl_warning(const NcclRates& rates,
                              const CataloguedRates& expected);

// Throws Error (exit 2) if the rate between machines (inside the machine, if
// there is only one) is below `gigabytes_per_second`.
void require_rate(const NcclRates& rates, double gigabytes_per_second);

// Throws Error (exit 2) if the environment excludes all of NCCL's interfaces.
void check_nccl_environment();

// In a run's first generation: measures, reports the rates and the warning, and
// refuses rates below the configured limit. `network`, measured over TCP, is
// set to NCCL's rates. Collective over `ranks`, whose tensors on `device` use
// NCCL; `host` has the same ranks.
void measure_nccl_at_start(const control::Assignment& assignment,
                           const configs::RunConfig& config,
                           const devices::ComputeDevice& device,
                           const devices::DeviceCommunicatorOptions& options,
                           control::CoordinatorClient& client,
                           collectives::Communicator& host,
                           collectives::Communicator& ranks,
                           std::optional<plan::NetworkRates>& network);

}  // namespace headroom::run
