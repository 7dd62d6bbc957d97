// What a run computes on, decided from the cards that its agents register: the
// card of each worker, and for all of them whether the run is on cards or on
// the CPU, and in which precision.
//
// An agent registers every card that its environment shows. --device says which
// of them count: "auto" and "all" every one, a list those that it names, "cpu"
// none. A run is on cards or on the CPU, on all of its nodes alike. Pure: the
// coordinator decides for all nodes, and a launcher that has one node asks the
// same functions before it starts anything.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "coordinator/run/membership.h"
#include "parallel/base/check.h"

namespace headroom::coordinator {

// The cards of a node's slots, as Node::slot_cards, or why it is refused.
struct SlotCards {
  std::vector<int64_t> cards;
  std::optional<Error> refusal;
};

// Chooses a card for each slot of `node`, in the order of the slots: the one
// with the slot's number on its machine, or the first that no worker of another
// agent of the machine has. `others`:
// the nodes that are registered. Refuses a node without a card beside nodes
// with cards, and the other way round; a card that is named and not there, that
// may not be computed on, or that two workers would need. It chooses nothing
// (-1) on the CPU, and for an agent that has not looked for cards. `left_out`:
// the UUIDs of cards that failed, and are not chosen.
SlotCards choose_slot_cards(const configs::RunConfig& config, const Node& node,
                            std::span<const Node> others,
                            const std::set<std::string>& left_out = {});

// Why the node starts another number of workers than the run expects of each
// node of its launcher: one of its cards is missing, for example. Nothing if it
// does not.
std::optional<Error> launcher_count_error(const Node& node,
                                          int expected_workers);

struct DeviceChoice {
  // The value for --device: "cpu", "all", or the list that was given.
  std::string device;
  configs::Precision precision = configs::Precision::kFp32;
  // "8 x NVIDIA H100 80GB HBM3, bf16"; "CPU, fp32"
  std::string text;
  // Why the precision was chosen; "" if it was given, or on the CPU.
  std::string reason;
  // Cards that nothing uses, and what to type; "" where there are none.
  std::string warning;
};

// Settles --device auto and --precision auto. REQUIRES: choose_slot_cards has
// chosen the cards of `nodes`.
DeviceChoice choose_devices(const configs::RunConfig& config,
                            std::span<const Node> nodes);

}  // namespace headroom::coordinator
