// Measures NCCL at a run's start: sums of 64 MiB over all ranks, and over those
// of each machine.
//
// If NCCL does not find the fast network, it uses TCP without a message. The
// reported rate, and a warning if it is far below that of such machines, show
// it to the user.
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
  std::string transport;  // "AWS Libfabric"; between machines
  int64_t machines = 1;
  int64_t cards_of_machine = 1;  // the most of one
  // Bytes a second that a sum moves over its slowest link, which is
  // 2 (n - 1) / n of it (NCCL's "bus bandwidth"); 0: there is no such link.
  double between_machines = 0;
  double inside_machine = 0;
};

// "NCCL: AWS Libfabric, 41 GB/s between machines, 370 GB/s inside".
std::string nccl_rates_text(const NcclRates& rates);

// The catalogue's rates of machines with so many of these cards: of the slowest
// that it lists. 0: it lists none.
struct CataloguedRates {
  std::string machine;  // "AWS p5.48xlarge"
  double between_machines = 0, inside_machine = 0;
};
CataloguedRates catalogued_rates(const std::string& card, int64_t cards);

// A warning if a rate is below a tenth of the catalogue's, otherwise "".
std::string slow_nccl_warning(const NcclRates& rates,
                              const CataloguedRates& expected);

// Throws Error (exit 2) where the rate between machines, or inside the only
// one, is below `gigabytes_per_second`.
void require_rate(const NcclRates& rates, double gigabytes_per_second);

// Throws Error (exit 2) where the environment leaves NCCL no interface.
void check_nccl_environment();

// In a run's first generation: measures, reports the rates and the warning, and
// refuses rates below the configuration's limit. `network`, measured over TCP,
// becomes NCCL's. Collective over `ranks`, whose tensors on `device` use NCCL;
// `host` has the same ranks.
void measure_nccl_at_start(const control::Assignment& assignment,
                           const configs::RunConfig& config,
                           const devices::ComputeDevice& device,
                           const devices::DeviceCommunicatorOptions& options,
                           control::CoordinatorClient& client,
                           collectives::Communicator& host,
                           collectives::Communicator& ranks,
                           std::optional<plan::NetworkRates>& network);

}  // namespace headroom::run
