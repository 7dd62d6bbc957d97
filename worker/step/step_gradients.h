// StepGradients: the gradient of one step, summed over all ranks that hold the
// same layers. The ZeRO stage decides how.
//
//   begin_step()
//   begin_forward()             before the forward of each micro-batch
//   begin_micro_batch(is_last)  before its backward
//   finish(extra)               once per step: sums the remaining gradients and
//                               the small tensors `extra`
//
//   ZeRO 0, 1   all-reduced in buckets, in the last backward
//   ZeRO 2, 3   each layer reduce-scattered in every backward
//
// A step that fails on any rank is dropped on all ranks, by abandon().
//
// Ownership: borrows the flat buffer and the ranks.
// Errors: CommunicationError; c10::OutOfMemoryError in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parallel/collectives/mesh.h"
#include "parallel/data_parallel/flat_buffer.h"
#include "parallel/data_parallel/gradient_reducer.h"
#include "parallel/zero/sharded_layers.h"

namespace headroom::step {

// Which tensors a rank holds as slices: the columns of the table in
// training_state.h.
struct Slices {
  explicit Slices(int zero_stage)
      : weights(zero_stage == 3),
        gradients(zero_stage >= 2),
        rest(zero_stage >= 1) {}

  bool weights, gradients;
  bool rest;  // accumulated gradient, moments, average
};

// Empties autograd's queue. After an exception it would keep nodes and saved
// tensors until the thread's next backward.
void release_failed_graph();

class StepGradients {
 public:
  // A null `mesh` means one process. REQUIRES: `parameters` has values_apart
  // and gradients_apart as in `slices`.
  StepGradients(data_parallel::FlatBuffer& parameters,
                const zero::ShardMap& shards, const Slices& slices,
                collectives::Mesh* mesh);

  void begin_step();
  void begin_forward();
  void begin_micro_batch(bool is_last);
  void finish(std::span<at::Tensor> extra);
  // REQUIRES: the mesh has been disconnected since the failure, unless this
  // rank is alone.
  void abandon();

  // The summed gradient as a flat tensor: whole, or this rank's slices.
  const at::Tensor& own() {
    return sharded_ ? sharded_->gradient_shard() : parameters_.gradients();
  }
  // The sharded layers under ZeRO 2 and 3; null otherwise.
  zero::ShardedLayers* sharded() { return sharded_.get(); }

 private:
  void reduce(std::span<at::Tensor> extra);

  data_parallel::FlatBuffer& parameters_;
  std::unique_ptr<collectives::Communicator> alone_;
  collectives::Communicator& replicas_;
  // Null under ZeRO 2 and 3.
  std::unique_ptr<data_parallel::GradientReducer> reducer_;
  std::unique_ptr<zero::ShardedLayers> sharded_;
};

}  // namespace headroom::step
