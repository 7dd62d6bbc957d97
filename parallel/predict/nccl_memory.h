// Estimates the card memory that NCCL takes, for plans made before a run
// measures it (worker/memory/device_footprint.h).
//
// A communicator has receive buffers in the card's memory: one set for each
// channel and each sending rank. Their sizes in NCCL 2.28, for the three
// protocols:
//
//   LL      8 lines x 512 threads x 8 steps x 16 bytes      0.50 MiB
//   LL128   120 elements x 640 threads x 8 steps x 8 bytes  4.69 MiB
//   Simple  NCCL_BUFFSIZE                                   4.00 MiB
//
// In a ring a rank receives from one sender. A tree adds one sender within a
// machine, where the tree is a chain, and up to two between machines. So for
// one communicator 8 cards behind NVSwitch take 16 x 2 x 9.19 MiB = 294 MiB,
// and several such machines 441 MiB. Sums in the switch (NVLS), which are off,
// would add 16 channels x 2 directions x 8 cards x 1 MiB = 256 MiB.
//
// Which ranks share batch-norm groups depends on the batch. At most two groups
// of a batch are shared with others, so communicators for two batches are
// counted, of 2 channels each.
#pragma once

#include <cstdint>

#include "parallel/plan/layout.h"

namespace headroom::predict {

// How a run's cards are connected.
struct CardLinks {
  int64_t cards_of_machine = 1;
  bool has_nvlink = false;  // false means PCIe
};

// The number of communicators between cards.
int64_t nccl_groups(const plan::ParallelLayout& layout, int zero_stage);

// Bytes on one rank; 0 if the run has only one.
int64_t nccl_bytes(const plan::ParallelLayout& layout, int zero_stage,
                   const CardLinks& links);

}  // namespace headroom::predict
