// Decides what a run computes on, from the cards that its agents register:
// cards or CPU for the whole run, the card of each worker, and the precision.
//
// An agent registers every card that its environment shows. --device selects
// among these cards: "auto" and "all" select every card, a list selects the
// cards in it, "cpu" none. All nodes of a run compute on cards, or all on CPUs.
// Pure: the coordinator decides for all nodes, and a launcher with one node
// calls the same functions before it starts any process.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "configs/card_measurements.h"
#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "coordinator/run/membership.h"
#include "parallel/base/check.h"
#include "parallel/planner/card_speed.h"

namespace headroom::coordinator {

// The cards of a node's slots (Node::slot_cards), or why the node is refused.
struct SlotCards {
  std::vector<int64_t> cards;
  std::optional<Error> refusal;
};

// Chooses a card for each slot of `node`, in slot order: the card whose
// position is the slot's number on its machine, or, if that card has a worker,
// the first card without a worker. `others` are the registered nodes;
// `left_out` has the UUIDs of failed cards, which are not chosen. Refuses a
// node without cards if other nodes have cards, and a node with cards if other
// nodes have none; a named card that does not exist or must not be used; and a
// card that two workers would need. On the CPU, and if the agent has not looked
// for cards, each slot gets -1.
SlotCards choose_slot_cards(const configs::RunConfig& config, const Node& node,
                            std::span<const Node> others,
                            const std::set<std::string>& left_out = {});

// Returns an error if the node starts another number of workers than the run
// expects of each node of its launcher, for example because a card is missing.
std::optional<Error> launcher_count_error(const Node& node,
                                          int expected_workers);

struct DeviceChoice {
  // The decided value of --device: "cpu", "all", or the given list.
  std::string device;
  configs::Precision precision = configs::Precision::kFp32;
  bool checks_float16 = false;  // as in RunConfig
  // "8 x NVIDIA H100 80GB HBM3, bf16"; "CPU, fp32"
  std::string text;
  // Why this precision was chosen; "" if the user gave it, and on the CPU.
  std::string reason;
  // Names unused cards and the flag that uses them; "" if there are none.
  std::string warning;
};

// Decides --device auto and --precision auto. REQUIRES: the cards of `nodes`
// have been chosen by choose_slot_cards.
DeviceChoice choose_devices(const configs::RunConfig& config,
                            std::span<const Node> nodes);

// The slowest card on which the nodes' workers compute, for plans: a step waits
// for the slowest. Unknown on the CPU, and if no agent has said which cards
// there are. REQUIRES: as choose_devices(), and a decided device.
planner::CardSpeed card_of_run(
    const configs::RunConfig& config, std::span<const Node> nodes,
    const std::vector<layers::LayerCost>& layers,
    const std::vector<configs::CardMeasurement>& measurements);

}  // namespace headroom::coordinator
