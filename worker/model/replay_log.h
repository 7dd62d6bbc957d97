// ReplayLog: records values that a layer received from other ranks, so that the
// layer can be run once more.
//
// A recomputation must not communicate, and must not add to the batch-norm sums
// again. So layers obtain values from other ranks (batch-norm statistics, halo
// rows) through this log: the first pass records them, and a replay returns
// them in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::model {

class ReplayLog {
 public:
  // Returns the value of `produce`, which is called in the first pass only.
  template <typename Produce>
  at::Tensor once(const Produce& produce) {
    if (!replaying_) {
      recorded_.push_back(produce());
      return recorded_.back();
    }
    HEADROOM_CHECK(next_ < recorded_.size(),
                   cat("a replayed layer asks for ", next_ + 1, " values, but ",
                       recorded_.size(), " were recorded"));
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
