// A StatisticsExchange over communicators, which must outlive it and should be
// used for nothing else during backward (see GradientReducer).
#pragma once

#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "parallel/base/layer_exchange.h"
#include "parallel/collectives/communicator.h"

namespace headroom::data_parallel {

class CommunicatorExchange final : public StatisticsExchange {
 public:
  // Groups [begin, end) of those that this rank lists, and the ranks that share
  // them. Each of these ranks lists them, but not at the same place.
  struct Part {
    collectives::Communicator* ranks;
    int64_t begin = 0, end = 1;
  };

  // Sums all groups over the ranks, which list the same ones.
  explicit CommunicatorExchange(collectives::Communicator& ranks)
      : CommunicatorExchange({{&ranks}}, 1) {}
  // Sums the parts of `num_groups` listed groups, one after another. Groups in
  // no part are this rank's own.
  CommunicatorExchange(std::vector<Part> parts, int64_t num_groups)
      : parts_(std::move(parts)), num_groups_(num_groups) {}

  void sum(std::span<double> values) override {
    sum_tensor(at::from_blob(
        values.data(), {static_cast<int64_t>(values.size())}, at::kDouble));
  }

  void sum_tensor(const at::Tensor& values) override {
    if (values.numel() == 0) return;  // no group has samples here
    const int64_t size = values.numel() / num_groups_;
    const at::Tensor flat = values.view(-1);
    for (const Part& part : parts_) {
      part.ranks->all_reduce(
          flat.narrow(0, part.begin * size, (part.end - part.begin) * size));
    }
  }

 private:
  const std::vector<Part> parts_;
  const int64_t num_groups_;
};

}  // namespace headroom::data_parallel
