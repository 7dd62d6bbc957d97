// NodeCards: the cards that workers of this machine could compute on, as an
// agent registers them.
//
// NVIDIA's driver is asked (parallel/nvml): that takes no context and no
// LibTorch. A build without the plugin for CUDA, or a machine without a driver,
// has no card, with the reason. Where HEADROOM_DEVICE_PLUGIN names another
// plugin, the worker program is asked what that one shows.
#pragma once

#include <string>
#include <vector>

#include "coordinator/run/membership.h"
#include "proto/reports.h"

namespace headroom::cli {

struct NodeCards {
  std::vector<wire::NodeCard> cards;
  std::string no_card_reason;  // "" where there is one
  // Cards that the driver has and no worker can use, and why; "": none.
  std::string unusable_cards;
  std::vector<std::string> lines;  // "card 0: NVIDIA H200, …", for people
};

NodeCards find_node_cards();

// This machine as its agent would register it with so many workers.
coordinator::Node node_with(const NodeCards& cards, int num_workers);

}  // namespace headroom::cli
