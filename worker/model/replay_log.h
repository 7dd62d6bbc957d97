// ReplayLog: what a layer received from other ranks while it ran, for running
// it once more.
//
// A recomputation must communicate nothing and count nothing twice. So whatever
// a layer gets from elsewhere (batch-norm statistics, halo rows) goes through
// this log: the first pass records, a replay returns the records in order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::model {

class ReplayLog {
 public:
  // The value of `produce`, which is called in the first pass only.
  template <typename Produce>
  at::Tensor once(const Produce& produce) {
    if (!replaying_) {
      recorded_.push_back(produce());
      return recorded_.back();
    }
    HEADROOM_CHECK(next_ < recorded_.size(),
                   "a replayed layer asks for " + std::to_string(next_ + 1) +
                       " values, but " + std::to_string(recorded_.size()) +
                       " were recorded");
    return recorded_[next_++];
  }

  void start_replay() {
    replaying_ = true;
    next_ = 0;
  }

 private:
  std::vector<at::Tensor> recorded_;
  std::size_t next_ = 0;
  bool replaying_ = false;
};

}  // namespace headroom::model
