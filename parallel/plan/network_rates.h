// Measured speed of the network between the machines of a run. Rank 0 measures
// it at the start (parallel/collectives/network_measurement.h).
#pragma once

#include <cstdint>
#include <string>

namespace headroom::plan {

struct NetworkRates {
  int64_t machines = 0;
  // the first machine's network interface; "" if unknown
  std::string interface = {};
  // Rates in one direction, while each machine exchanges data with one other
  // machine.
  double slowest_bytes_per_second = 0;
  double fastest_bytes_per_second = 0;
  // delay of one message between the slowest pair of machines
  double latency_seconds = 0;
  bool is_sample = false;  // not every pair of machines was measured

  bool operator==(const NetworkRates&) const = default;
};

// The rates as text: "network: 4 machines over eth0, 9.4 to 9.6 Gbit/s, 0.08
// ms".
std::string network_text(const NetworkRates& rates);

}  // namespace headroom::plan
