// GradientReducer: sums the gradient flat buffer over all ranks, bucket by
// bucket, while backward is still computing the rest (Li et al., "PyTorch
// Distributed", VLDB 2020).
//
//   reducer.begin(is_last);  micro_batch.backward();    for each micro-batch
//   reducer.finish(extra);                              once a step
//
// A step's collectives are a fixed list: all buckets in index order, then the
// extra tensors. A rank that fails locally calls complete_with_zeros() instead
// of finish(), so that its peers are not left waiting.
//
// Buckets start whenever backward reaches them. Whatever else communicates
// during backward (StatisticsExchange) therefore needs a communicator of its
// own: see Communicator::split.
//
// Ownership: refers to the flat buffer and the communicator, which must outlive
// it. Several may follow each other on one flat buffer; only the newest
// reduces. Threads: all calls, and backward, in the thread that runs the step.
// Errors: CommunicationError from any call, and out of backward.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "parallel/collectives/communicator.h"
#include "parallel/data_parallel/flat_buffer.h"

namespace headroom::data_parallel {

class GradientReducer {
 public:
  static constexpr int64_t kDefaultBucketBytes = 4 << 20;

  // REQUIRES: a flat buffer with gradients.
  GradientReducer(FlatBuffer& flat_buffer,
                  collectives::Communicator& communicator,
                  int64_t bucket_bytes = kDefaultBucketBytes);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Before the one backward of each micro-batch. With `reduce`, set for a
  // step's last one, buckets start as soon as their gradients are final.
  // Parameters that require no gradient are not waited for.
  void begin(bool reduce);

  // Starts what backward did not reach, then the extra tensors; returns when
  // every sum is in place. A rank without samples calls it without begin().
  void finish(std::span<at::Tensor> extra = {});

  // In place of finish() on a rank that failed before it: waits for buckets
  // under way, zeroes the gradients and `extra`, and takes part in the rest.
  // Allocates no tensor memory. The sums are worthless on every rank.
  void complete_with_zeros(std::span<at::Tensor> extra = {});

  int64_t num_buckets() const;
  // Buckets of the present step that were started so far.
  int64_t num_started() const;

 private:
  struct State;
  class ReadyHook;
  std::shared_ptr<State> state_;
};

}  // namespace headroom::data_parallel
