// How much of a card others use, from what NVML said.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/nvml/nvml.h"

namespace headroom::nvml {

// Bytes of `card` that are not this run's: neither free, nor the driver's, nor
// of the processes `own_pids`. In a container the driver's process numbers are
// not ours, and none matches: then `own_bytes`, what these processes know to
// hold, is subtracted instead (0 before they start).
int64_t bytes_of_others(const Card& card, std::span<const int64_t> own_pids,
                        int64_t own_bytes);

// The devices of --device: "0", "0,2", "cuda", "cuda:1". Throws Error (exit 2)
// for other words, for a card twice, and for one that is not there, saying what
// is.
std::vector<Card> cards_asked_for(const std::string& device, const Nvml& nvml);

// "card 0: NVIDIA H200, 139 GiB, others use 21 GiB of it".
std::string card_text(const Card& card, int64_t others_bytes);

}  // namespace headroom::nvml
