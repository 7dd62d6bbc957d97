// BatchNormGroup: the samples of one group that a micro-batch holds.
// StatisticsExchange: sums of a group whose samples sit on several ranks.
//
// A convolution block knows no ranks. When a group of samples spans ranks, it
// is handed an exchange and adds up its per-channel sums through it; with every
// group inside one process no exchange is handed over and nothing is sent.
//
// Threads: used by the thread that runs the step.
#pragma once

#include <cstdint>
#include <span>

namespace headroom {

// One batch-norm group as a micro-batch sees it. Groups are listed in global
// order, and every rank lists the same groups whenever an exchange is set.
struct BatchNormGroup {
  // Samples [local_begin, local_end) of this micro-batch; may be empty.
  int64_t local_begin = 0;
  int64_t local_end = 0;
  // Samples of the whole group, over all ranks.
  int64_t global_samples = 0;
  // One rank per group counts its statistics towards the running ones.
  bool counts_here = true;
};

class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  // Replaces `values` by their element-wise sum over all ranks. Every rank
  // calls it equally often and with the same size, also with no sample of its
  // own. Throws CommunicationError.
  virtual void sum(std::span<double> values) = 0;
};

}  // namespace headroom
