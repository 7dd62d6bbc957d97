// The devices that --device names, as in YOLOv5: "cpu" or nothing for the CPU;
// cards by number as in "0", "0,2", "cuda:1"; "cuda" for the first.
#pragma once

#include <string>
#include <vector>

namespace headroom {

// The environment variable that names another plugin for devices than the
// build's own, such as that of the tests.
inline constexpr const char* kDevicePluginVariable = "HEADROOM_DEVICE_PLUGIN";

// The cards' numbers; empty for the CPU. Throws Error (exit 2) for other words
// and for a card that is named twice. Does not ask whether the cards are there.
std::vector<int> parse_device_list(const std::string& device);

// The card of a process: cards are handed out in order, and from the first
// again where several processes may share one. Throws Error (exit 2) where they
// may not. `local_rank`: its place among all workers of the machine, lost ones
// included; `local_ranks`: those that run. REQUIRES: at least one card,
// 0 <= local_rank.
int card_of_rank(const std::vector<int>& cards, int local_rank, int local_ranks,
                 bool may_share);

// The compute capability of a card as CUDA writes it: 86 is "8.6".
std::string capability_text(int compute_capability);

}  // namespace headroom
