// GradientReducer: sums the gradients in the flat buffer over all ranks, bucket
// by bucket, while backward still computes the rest (Li et al., "PyTorch
// Distributed", VLDB 2020).
//
//   reducer.begin(is_last);  micro_batch.backward();    for each micro-batch
//   reducer.finish(extra);                              once a step
//
// The collectives of a step are a fixed list: all buckets in index order, then
// the extra tensors.
//
// A bucket starts whenever backward has reached it. Other communication during
// backward (StatisticsExchange) therefore needs its own communicator: see
// Communicator::split.
//
// The flat buffer and the communicator must outlive the reducer. A new reducer
// on the same flat buffer replaces the previous one. All calls and backward
// happen in the thread that runs the step. Errors: CommunicationError from any
// call and from backward.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/data_parallel/flat_buffer.h"

namespace headroom::data_parallel {

// A range of the gradient buffer that is reduced with one collective.
//
// Backward finishes the deepest layers first, so buckets are cut from the end
// of the flat buffer. The last bucket holds little more than the stem, because
// no computation is left to overlap with it.
struct Bucket {
  // Slots [first_slot, last_slot).
  int64_t first_slot = 0;
  int64_t last_slot = 0;
  // Elements [offset, offset + size) of the flat buffer, padding included.
  int64_t offset = 0;
  int64_t size = 0;
  bool operator==(const Bucket&) const = default;
};

// The buckets in the order of their reduction; together they cover [0,
// flat_buffer_size). Each but the last takes slots until it has at least
// `bucket_bytes`. REQUIRES: element_size > 0, bucket_bytes > 0.
std::vector<Bucket> carve_buckets(const std::vector<FlatBuffer::Slot>& slots,
                                  int64_t flat_buffer_size,
                                  int64_t element_size, int64_t bucket_bytes);

class GradientReducer {
 public:
  // `bucket_bytes`: larger buckets use the network better; smaller ones start
  // earlier, and leave less to send after backward. 0 means
  // plan::bucket_bytes(). REQUIRES: a flat buffer with gradients.
  GradientReducer(FlatBuffer& flat_buffer,
                  collectives::Communicator& communicator,
                  int64_t bucket_bytes = 0);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Call it before the backward of each micro-batch. With `reduce`, to be set
  // for the last micro-batch of a step, buckets start as soon as their
  // gradients are final. Parameters that require no gradient are not waited
  // for.
  void begin(bool reduce);

  // Starts the remaining buckets and then the extra tensors, and waits until
  // all sums are complete. A rank without samples calls it without begin().
  void finish(std::span<at::Tensor> extra = {});

  // Drops a step that failed on this or another rank, with the sums in flight.
  // REQUIRES: the communicator has been disconnected, so that nothing writes to
  // the gradients any more.
  void abandon();

  int64_t num_buckets() const;
  // Buckets of this step that have been started.
  int64_t num_started() const;

 private:
  struct State;
  class ReadyHook;
  std::shared_ptr<State> state_;
};

}  // namespace headroom::data_parallel
