// StepReports: what ranks tell each other at the end of a step, in one
// all-reduce: the losses and the squared norm of the gradient, summed over
// ranks, and three numbers of bytes, each rank's beside the others'.
//
// All numbers travel as doubles, which hold whole numbers up to 2^53 exactly; a
// number of bytes outside of 0 to 2^53 is refused.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom::step {

class StepReports {
 public:
  struct Losses {
    double box = 0, obj = 0, cls = 0;
    double sum() const { return box + obj + cls; }
    bool is_finite() const;
  };
  // Bytes of tensors on a rank: its peak in the attempt as it was measured,
  // what stays when all that the attempt needed has been released, and the peak
  // that was predicted (0: it was not).
  enum class Bytes { kMeasuredPeak, kLive, kPredictedPeak };

  StepReports(int rank, int num_ranks);

  // All of this rank's are 0.
  void clear();
  // `items` [3]: this rank's share of box, obj and cls, on any device.
  void set_losses(const at::Tensor& items);
  void set_squared_norm_share(double share);
  void set_bytes(Bytes which, int64_t bytes);

  // Collective: from here on the reports are those of all ranks. Throws
  // CommunicationError.
  void all_reduce(collectives::Communicator& communicator);

  Losses losses() const;
  double squared_norm() const;
  std::vector<int64_t> bytes_of_all_ranks(Bytes which) const;

 private:
  int64_t begin_of(Bytes which) const;

  int rank_;
  int num_ranks_;
  at::Tensor values_;  // [4 + 3 * num_ranks]
};

}  // namespace headroom::step
