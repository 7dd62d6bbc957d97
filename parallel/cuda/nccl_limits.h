// How large NCCL's communicators are made.
#pragma once

#include <algorithm>

namespace headroom::cuda {

// NCCL's channels are blocks of its kernels: each takes a multiprocessor from
// the computation beside it, and connections with 9.2 MiB of buffers. NCCL
// takes up to 32 where links are many; 16 carry what buckets of a detector's
// gradients need. NCCL_MAX_CTAS of the environment wins.
inline constexpr int kMostNcclChannels = 16;

// Ranks connect through a process that listens for them: one of so many.
inline constexpr int kRanksOfRoot = 256;
inline int roots_of(int ranks) {
  return std::max(1, (ranks + kRanksOfRoot - 1) / kRanksOfRoot);
}
// NCCL shares out `ranks` evenly, in rank order. The first rank of root `root`.
inline int first_rank_of_root(int root, int ranks) {
  const int roots = roots_of(ranks);
  return root * (ranks / roots) + std::min(root, ranks % roots);
}

}  // namespace headroom::cuda
