// NodeCards: the cards of this machine that workers could use, as an agent
// registers them.
//
// NVIDIA's driver is queried (parallel/nvml), which needs neither a CUDA
// context nor LibTorch. A build without the CUDA plugin, or a machine without a
// driver, has no cards; the reason is given. If HEADROOM_DEVICE_PLUGIN names
// another plugin, the worker program is asked for the devices of that plugin.
#pragma once

#include <string>
#include <vector>

#include "coordinator/run/membership.h"
#include "proto/reports.h"

namespace headroom::cli {

struct NodeCards {
  std::vector<wire::NodeCard> cards;
  std::string no_card_reason;  // "" if there is a card
  // Cards that the driver lists but no worker can use, and why; "" if none.
  std::string unusable_cards;
  std::vector<std::string> lines;  // for the user: "card 0: NVIDIA H200, …"
};

NodeCards find_node_cards();

// This machine as its agent would register it with `num_workers` workers.
coordinator::Node node_with(const NodeCards& cards, int num_workers);

}  // namespace headroom::cli
