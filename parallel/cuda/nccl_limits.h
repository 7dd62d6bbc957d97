// Limits on the size of NCCL's communicators.
#pragma once

#include <algorithm>

namespace headroom::cuda {

// NCCL's channels are blocks of its kernels. Each takes a multiprocessor from
// concurrent computation, and 9.2 MiB of buffers for connections. By default
// NCCL uses up to 32 if there are many links; 16 are enough for buckets of a
// detector's gradients. NCCL_MAX_CTAS in the environment overrides this.
inline constexpr int kMostNcclChannels = 16;

// Ranks connect through listening processes, one per this number of ranks.
inline constexpr int kRanksOfRoot = 256;
inline int roots_of(int ranks) {
  return std::max(1, (ranks + kRanksOfRoot - 1) / kRanksOfRoot);
}
// The first rank of root `root`. NCCL divides `ranks` evenly, in rank order.
inline int first_rank_of_root(int root, int ranks) {
  const int roots = roots_of(ranks);
  return root * (ranks / roots) + std::min(root, ranks % roots);
}

}  // namespace headroom::cuda
