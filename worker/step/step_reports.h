// StepReports: what ranks tell each other at the end of a step, in one
// all-reduce: the losses and the squared norm of the gradient, summed over
// ranks; three numbers of bytes and a ballot, each rank's beside the others';
// and the matches of the step that follows, where every rank knows its own.
//
// The verdict is that of the ballots, but where the norm is not finite a rank
// whose own numbers were is of those that vote so.
//
// All numbers travel as doubles, which hold whole numbers up to 2^53 exactly; a
// number of bytes outside of 0 to 2^53 is refused.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/data_parallel/vote.h"

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

  StepReports(int rank, int num_ranks, int64_t num_levels = 0);

  // All of this rank's are 0.
  void clear();
  // `items` [3]: this rank's share of box, obj and cls, on any device.
  void set_losses(const at::Tensor& items);
  void set_losses(std::span<const double, 3> items);
  void set_squared_norm_share(double share);
  void set_bytes(Bytes which, int64_t bytes);
  void set_ballot(const data_parallel::Ballot& ballot);
  // This rank's share of the matches of each level in the step that follows;
  // not called where it does not know them.
  void set_following_matches(const std::vector<int64_t>& matches);

  // Collective: from here on the reports are those of all ranks. Throws
  // CommunicationError.
  void all_reduce(collectives::Communicator& communicator);

  Losses losses() const;
  double squared_norm() const;
  std::vector<int64_t> bytes_of_all_ranks(Bytes which) const;
  data_parallel::Verdict verdict() const;
  // The matches of each level in the next global batch; nothing where a rank
  // did not know its own.
  std::optional<std::vector<int64_t>> following_matches() const;

 private:
  int64_t begin_of(Bytes which) const;
  int64_t begin_of_ballots() const;
  int64_t begin_of_matches() const;

  int rank_;
  int num_ranks_;
  int64_t num_levels_;
  at::Tensor values_;
};

}  // namespace headroom::step
