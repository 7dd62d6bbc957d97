// A StatisticsExchange over the ranks of a communicator. The communicator must
// outlive it, and should be used for nothing else during backward (see
// GradientReducer).
#pragma once

#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <span>

#include "parallel/base/layer_exchange.h"
#include "parallel/collectives/communicator.h"

namespace headroom::data_parallel {

class CommunicatorExchange final : public StatisticsExchange {
 public:
  explicit CommunicatorExchange(collectives::Communicator& communicator)
      : communicator_(communicator) {}

  void sum(std::span<double> values) override {
    if (values.empty()) return;  // micro-batch is empty on all ranks
    communicator_.all_reduce(at::from_blob(
        values.data(), {static_cast<int64_t>(values.size())}, at::kDouble));
  }

  void sum_tensor(const at::Tensor& values) override {
    if (values.numel() > 0) communicator_.all_reduce(values);
  }

 private:
  collectives::Communicator& communicator_;
};

}  // namespace headroom::data_parallel
