// GradientReducer: sums the gradient flat buffer over all ranks, bucket by
// bucket, while backward is still computing the rest (Li et al., "PyTorch
// Distributed", VLDB 2020).
//
//   reducer.begin(is_last);  micro_batch.backward();    for each micro-batch
//   reducer.finish(extra);                              once a step
//
// A step's collectives are a fixed list: all buckets in index order, then the
// extra tensors.
//
// Buckets start whenever backward reaches them. Whatever else communicates
// during backward (StatisticsExchange) therefore needs a communicator of its
// own: see Communicator::split.
//
// The flat buffer and the communicator must outlive it. Several reducers may
// follow each other on one flat buffer; only the newest reduces. All calls, and
// backward, happen in the thread that runs the step. Errors: CommunicationError
// from any call, and out of backward.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/data_parallel/flat_buffer.h"

namespace headroom::data_parallel {

// A range of the gradient flat buffer that is reduced on its own.
//
// Backward finishes the deepest layers first, so buckets are carved from the
// flat buffer's end. The last one holds little more than the stem: nothing is
// left to compute while it travels.
struct Bucket {
  // Slots [first_slot, last_slot).
  int64_t first_slot = 0;
  int64_t last_slot = 0;
  // Elements [offset, offset + size) of the flat buffer, padding included.
  int64_t offset = 0;
  int64_t size = 0;
  bool operator==(const Bucket&) const = default;
};

// The buckets in the order of their reduction; together they tile [0,
// flat_buffer_size). Each but the last takes slots until it holds at least
// `bucket_bytes`. REQUIRES: element_size > 0, bucket_bytes > 0.
std::vector<Bucket> carve_buckets(const std::vector<FlatBuffer::Slot>& slots,
                                  int64_t flat_buffer_size,
                                  int64_t element_size, int64_t bucket_bytes);

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

  // Called before the one backward of each micro-batch. With `reduce`, set for
  // a step's last one, buckets start as soon as their gradients are final.
  // Parameters that require no gradient are not waited for.
  void begin(bool reduce);

  // Starts what backward did not reach, then the extra tensors; returns when
  // every sum is in place. A rank without samples calls it without begin().
  void finish(std::span<at::Tensor> extra = {});

  // Drops a step that failed on this or another rank, with the sums that are
  // under way. REQUIRES: the communicator has been disconnected since, so that
  // nothing writes to the gradients any more.
  void abandon();

  int64_t num_buckets() const;
  // Buckets of this step that were started so far.
  int64_t num_started() const;

 private:
  struct State;
  class ReadyHook;
  std::shared_ptr<State> state_;
};

}  // namespace headroom::data_parallel
