// The devices that --device names: "auto" or "" for the node's cards or CPU,
// "cpu", "all" for every card of each node, and, as in YOLOv5, cards by number
// ("0", "0,2", "cuda:1") or "cuda" for the first card.
#pragma once

#include <string>
#include <vector>

namespace headroom {

// Environment variable with the path of another device plugin, for tests.
inline constexpr const char* kDevicePluginVariable = "HEADROOM_DEVICE_PLUGIN";

inline constexpr const char* kAutomaticDevice = "auto";
inline constexpr const char* kCpuDevice = "cpu";
inline constexpr const char* kAllCards = "all";

// Returns true for "auto" and "": whether such a run uses cards or the CPU is
// decided once its nodes are known (coordinator/run/device_choice.h).
bool is_automatic_device(const std::string& device);

// Returns true if a run with this --device computes on cards; false for an
// automatic device. Throws as parse_device_list does.
bool computes_on_cards(const std::string& device);

// Returns the cards' numbers; empty for "cpu", "auto" and "all", which have no
// numbers. Throws Error (exit 2) for any other word, and for a card that is
// named twice. Does not check that the cards exist.
std::vector<int> parse_device_list(const std::string& device);

// Returns the card of a process. Processes get cards in order; if there are
// more processes than cards, the order starts again at the first card. Throws
// Error (exit 2) if there are more processes than cards and `may_share` is
// false. `local_rank` is the process's index among all workers of the machine,
// including lost workers; `local_ranks` is the number of running workers.
// REQUIRES: at least one card, 0 <= local_rank.
int card_of_rank(const std::vector<int>& cards, int local_rank, int local_ranks,
                 bool may_share);

// The compute capability of a card as CUDA writes it: 86 is "8.6".
std::string capability_text(int compute_capability);

}  // namespace headroom
