#include "parallel/planner/cluster_links.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::planner {
namespace {

// Assumed rates of unmeasured links. NVSwitch: nccl-tests on eight H200 sum 4
// MiB at 107 GB/s and 128 MiB at 402 GB/s; these values agree within a tenth. A
// data sheet adds up both directions.
constexpr double kLinkShare = 0.9;
constexpr double kSwitchLatency = 4e-6;
constexpr predict::Link kPcie{.bytes_per_second = 12e9,
                              .latency_seconds = 10e-6};
constexpr double kNetworkShare = 0.85;

}  // namespace

predict::Link link_inside(const configs::Instance& instance) {
  if (instance.link_gigabytes_per_second == 0) return kPcie;
  return {.bytes_per_second =
              static_cast<double>(instance.link_gigabytes_per_second) * 1e9 /
              2 * kLinkShare,
          .latency_seconds = kSwitchLatency};
}

predict::Link link_between(const configs::Instance& instance) {
  return {.bytes_per_second =
              static_cast<double>(instance.network_gigabits_per_second) * 1e9 /
              8 * kNetworkShare,
          .latency_seconds = kNetworkLatency};
}

predict::Machines machines_of(const configs::Instance& instance,
                              int64_t ranks) {
  HEADROOM_CHECK(
      ranks >= 1 && (ranks <= instance.gpus || ranks % instance.gpus == 0),
      cat(ranks, " ranks on machines of ", instance.gpus));
  const int64_t number = divided_up(ranks, instance.gpus);
  HEADROOM_CHECK(number == 1 || instance.network_gigabits_per_second > 0,
                 "the network of " + instance.name + " is not known");
  return {.number = number,
          .cards_each = ranks / number,
          .inside = link_inside(instance),
          .between = link_between(instance)};
}

}  // namespace headroom::planner
