// Limits on the size of NCCL's communicators.
#pragma once

#include <algorithm>

namespace headroom::cuda {

// NCCL's channels are blocks of its kernels. Each takes a multiprocessor from
// concurrent computation, and 9.2 MiB of buffers for connections. By default
// NCCL uses up to 32 if there are many links; 16 are enough for buckets of a
// detector's gradients. NCCL_MAX_CTAS in the environment overrides this.
inline constexpr int kMostNcclChannels = 16;

// For sums of kilobytes, whose latency counts and not their rate.
inline constexpr int kSmallSumChannels = 2;

// For messages from one rank to another. More are faster where many links join
// two cards, but each takes memory for each direction of each pair of ranks.
inline constexpr int kMessageChannels = 2;

// Ranks connect through listening processes (NCCL's roots), one for every
// kRanksOfRoot ranks.
inline constexpr int kRanksOfRoot = 256;
inline int roots_of(int ranks) {
  return std::max(1, (ranks + kRanksOfRoot - 1) / kRanksOfRoot);
}
// The first of the ranks that connect through root number `root`. NCCL divides
// the ranks among the roots in rank order, in nearly equal parts.
inline int first_rank_of_root(int root, int ranks) {
  const int roots = roots_of(ranks);
  return root * (ranks / roots) + std::min(root, ranks % roots);
}

}  // namespace headroom::cuda
