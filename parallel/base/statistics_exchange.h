// StatisticsExchange: sums of a batch-norm group whose samples sit on several
// ranks.
//
// A convolution block knows no ranks. When a group of samples spans ranks, it
// is handed an exchange and adds up its per-channel sums through it; with every
// group inside one process no exchange is handed over and nothing is sent.
//
// Threads: used by the thread that runs the step.
#pragma once

#include <span>

namespace headroom {

class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  // Replaces `values` by their element-wise sum over all ranks. Every rank
  // calls it equally often and with the same size, also with no sample of its
  // own. Throws CommunicationError.
  virtual void sum(std::span<double> values) = 0;
};

}  // namespace headroom
