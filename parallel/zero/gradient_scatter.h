// GradientScatter: sums each layer's gradient over all ranks and leaves every
// rank with its slice (ZeRO 2 and 3).
//
// A layer's gradient buffer exists from the first gradient that backward
// produces for the layer to the last; then it is reduced into the shard and
// released. The shard adds up the micro-batches of a step.
//
// It owns the shard, keeps the layers' buffers and parameters, and borrows the
// ranks. Errors: CommunicationError; c10::OutOfMemoryError where a buffer does
// not fit. Both come out of backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/zero/shard_map.h"

namespace headroom::zero {

class GradientScatter {
 public:
  struct Layer {
    at::Tensor gradients;                // flat, padded, of its own storage
    std::vector<at::Tensor> parameters;  // that learn; .grad views gradients
  };

  // `on_final(layer)` is called within backward when the last of the layer's
  // gradients is there; it calls reduce(layer) once it is the layer's turn.
  // `ranks` share the layers; `copies` hold the same slice and other parts of
  // the images.
  // REQUIRES: ranks.size() == map.num_ranks().
  GradientScatter(const ShardMap& map, std::vector<Layer> layers,
                  collectives::Communicator& ranks,
                  collectives::Communicator& copies,
                  std::function<void(int64_t)> on_final);
  ~GradientScatter();
  GradientScatter(const GradientScatter&) = delete;
  GradientScatter& operator=(const GradientScatter&) = delete;

  // [map.shard_size()]; the caller zeroes it at the start of a step.
  at::Tensor& shard();

  // Before the backward of each micro-batch.
  void begin_backward();
  // Collective: the layer's buffer, summed over all ranks, is added to the
  // shard and released.
  void reduce(int64_t layer);
  // Replaces reduce() on a rank that failed, with zeros. Allocates the layer's
  // buffer where it is not there.
  void reduce_zeros(int64_t layer);
  // Frees what a failed backward left.
  void release_all();

 private:
  struct State;
  class FirstUse;
  class Accumulated;
  std::shared_ptr<State> state_;
};

}  // namespace headroom::zero
