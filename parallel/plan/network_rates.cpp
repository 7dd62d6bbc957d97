#include "parallel/plan/network_rates.h"

#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::plan {

std::string network_text(const NetworkRates& rates) {
  const auto gigabits = [](double bytes_per_second) {
    const double rate = bytes_per_second * 8 / 1e9;
    return rate < 10 ? significant_text(rate, 2) : fixed_text(rate, 0);
  };
  const std::string slowest = gigabits(rates.slowest_bytes_per_second);
  const std::string fastest = gigabits(rates.fastest_bytes_per_second);
  return "network: " + counted(rates.machines, "machine") +
         (rates.interface.empty() ? "" : " over " + rates.interface) + ", " +
         slowest + (slowest == fastest ? "" : " to " + fastest) + " Gbit/s, " +
         significant_text(1e3 * rates.latency_seconds, 2) + " ms" +
         (rates.is_sample ? ", of neighbours and a sample of the others" : "");
}

}  // namespace headroom::plan
