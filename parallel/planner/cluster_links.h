// The links of the catalogue's machines as forecasts use them: the published
// rate less the share that is never reached.
#pragma once

#include <cstdint>

#include "configs/cluster_catalogue.h"
#include "parallel/predict/forecast.h"

namespace headroom::planner {

// Assumed delay of one message over an unmeasured network.
inline constexpr double kNetworkLatency = 20e-6;

// The link between two cards of a machine: its switch, else PCIe.
predict::Link link_inside(const configs::Instance& instance);

// The machine's network, with 0 bytes a second if the catalogue has no rate.
predict::Link link_between(const configs::Instance& instance);

// As many machines as `ranks` fill, with one card for each rank. REQUIRES:
// ranks >= 1; they fill whole machines, or fit in one.
predict::Machines machines_of(const configs::Instance& instance, int64_t ranks);

}  // namespace headroom::planner
