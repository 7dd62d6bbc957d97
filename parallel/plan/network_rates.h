// Measured speed of the network between the machines of a run. Rank 0 measures
// it at the start (parallel/collectives/network_measurement.h).
#pragma once

#include <cstdint>
#include <string>

namespace headroom::plan {

struct NetworkRates {
  int64_t machines = 0;
  std::string interface = {};  // of the first machine; "" if unknown
  // Rates are for one direction, while each machine exchanges with one other.
  double slowest_bytes_per_second = 0;
  double fastest_bytes_per_second = 0;
  double latency_seconds = 0;  // of one message, for the slowest pair
  bool is_sample = false;      // not every pair was measured

  bool operator==(const NetworkRates&) const = default;
};

// "network: 4 machines over eth0, 9.4 to 9.6 Gbit/s, 0.08 ms".
std::string network_text(const NetworkRates& rates);

}  // namespace headroom::plan
