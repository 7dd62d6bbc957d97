// The links of the catalogue's machines, as forecasts take them: what a data
// sheet publishes, less what never arrives.
#pragma once

#include <cstdint>

#include "configs/cluster_catalogue.h"
#include "parallel/predict/forecast.h"

namespace headroom::planner {

// One message's assumed delay over a network that was not measured.
inline constexpr double kNetworkLatency = 20e-6;

// Between two cards of a machine: its switch, else PCIe.
predict::Link link_inside(const configs::Instance& instance);

// A machine's network. No bytes a second where the catalogue names no rate.
predict::Link link_between(const configs::Instance& instance);

// As many of these machines as `ranks` fill, a card each.
// REQUIRES: ranks >= 1; they fill whole machines, or fit in one.
predict::Machines machines_of(const configs::Instance& instance, int64_t ranks);

}  // namespace headroom::planner
