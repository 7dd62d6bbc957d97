// CommunicatorExchange: a StatisticsExchange over the ranks of a communicator.
//
// Ownership: refers to the communicator, which must outlive it and should serve
// nothing else while backward runs (see GradientReducer).
// Threads: the thread that runs the step.
#pragma once

#include <span>

#include "parallel/base/statistics_exchange.h"
#include "parallel/collectives/communicator.h"

namespace headroom::data_parallel {

class CommunicatorExchange final : public StatisticsExchange {
 public:
  explicit CommunicatorExchange(collectives::Communicator& communicator)
      : communicator_(communicator) {}

  void sum(std::span<double> values) override;

 private:
  collectives::Communicator& communicator_;
};

}  // namespace headroom::data_parallel
