// StepReports: the numbers that ranks exchange at the end of a step, in one
// all-reduce: items, squared gradient norm and objections, summed over ranks;
// per rank its own items, three numbers of bytes and a ballot; the matches of
// the next step, if every rank has counted its own; and per rank, in some
// steps, the time of its passes and a digest of its weights.
//
// The verdict follows from the ballots and losses. If the summed norm is not
// finite, ranks whose own numbers were finite count as voting "not finite",
// too.
//
// Either the hosts sum (all_reduce()), or the devices do: a copy of values() is
// sent to each device, where the items are (set_items_in()), and take()
// receives the sum.
//
// All numbers are sent as doubles, which hold whole numbers up to 2^53 exactly;
// a byte count outside of 0 to 2^53 is refused.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "parallel/base/loss_terms.h"
#include "parallel/collectives/communicator.h"
#include "parallel/data_parallel/vote.h"
#include "worker/kernels/commit_numbers.h"

namespace headroom::step {

class StepReports {
 public:
  // The loss terms of the global batch (loss_terms.h).
  struct Losses {
    LossTerms terms = {};
    double sum() const;
    bool is_finite() const;
  };
  // Bytes of tensors on a rank: the measured peak of the attempt, the bytes
  // still live after it, and the predicted peak (0 if there is none).
  enum class Bytes { kMeasuredPeak, kLive, kPredictedPeak };

  StepReports(int rank, int num_ranks, int64_t num_levels = 0);

  // Sets all numbers of this rank to 0.
  void clear();
  // This rank's share of the items (worker/kernels/commit_numbers.h), on any
  // device.
  void set_items(const at::Tensor& items);
  void set_items(std::span<const double, kernels::kStepItems> items);
  void set_squared_norm_share(double share);
  void set_bytes(Bytes which, int64_t bytes);
  void set_ballot(const data_parallel::Ballot& ballot);
  // Sets this rank's matches per level in the next step. Not called if the next
  // batch is not loaded yet.
  void set_following_matches(const std::vector<int64_t>& matches);
  // Sets the time that this rank's passes took, by image (stragglers.h).
  void set_seconds_per_image(double seconds);
  // Sets this rank's digest (weight_check.h).
  void set_weight_digest(uint64_t digest);

  // ---- a sum on devices; `copy` is a copy of values() on a device ----
  const at::Tensor& values() const { return values_; }
  void set_items_in(const at::Tensor& copy, const at::Tensor& items) const;
  static at::Tensor items_in(const at::Tensor& copy);
  static at::Tensor objections_in(const at::Tensor& copy);  // [1]
  // The methods below then read `sums`, on the host.
  void take(const at::Tensor& sums) { values_.copy_(sums); }

  // Sums the reports of all ranks; the methods below read the sums. Collective.
  // Throws CommunicationError.
  void all_reduce(collectives::Communicator& communicator);

  Losses losses() const;
  double squared_norm() const;
  std::vector<int64_t> bytes_of_all_ranks(Bytes which) const;
  data_parallel::Verdict verdict() const;
  // Matches of each level in the next global batch; nullopt if a rank had not
  // loaded its part.
  std::optional<std::vector<int64_t>> following_matches() const;
  // By rank; 0 if a rank has set none.
  std::vector<double> seconds_per_image() const;
  // By rank; nullopt if a rank has set none.
  std::vector<std::optional<uint64_t>> weight_digests() const;

 private:
  int64_t begin_of_items(int rank) const;
  int64_t begin_of(Bytes which) const;
  int64_t begin_of_ballots() const;
  int64_t begin_of_matches() const;
  // The numbers of `rank` that are sent in some steps only.
  int64_t begin_of_checks(int rank) const;

  int rank_;
  int num_ranks_;
  int64_t num_levels_;
  at::Tensor values_;
};

}  // namespace headroom::step
