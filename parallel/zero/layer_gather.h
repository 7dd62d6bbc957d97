// LayerGather: values that rest as shards and are whole, layer by layer, only
// while they are needed (ZeRO 3's parameters; the averaged weights of ZeRO 1 to
// 3).
//
// Ownership: owns the shard; keeps the layers' buffers, borrows the ranks.
// Threads: the thread that runs the step.
// Errors: CommunicationError; c10::OutOfMemoryError before a rank has taken
// part in a gather, so that it can still do so.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/zero/shard_map.h"

namespace headroom::zero {

class LayerGather {
 public:
  // Takes its slices from `layers` and releases their memory. layers[i] is
  // flat, of padded_layer_size(i) elements, with a storage of its own, and
  // equal on all ranks. REQUIRES: ranks.size() == map.num_ranks().
  LayerGather(const ShardMap& map, std::vector<at::Tensor> layers,
              collectives::Communicator& ranks);

  // [map.shard_size()]: the values between two uses.
  at::Tensor& shard() { return shard_; }

  // Collective: the layer's values on every rank, from the shards as they are.
  void gather(int64_t layer) { begin_gather(layer)->wait(); }
  // The layer must not be used, nor its memory released, before wait().
  std::unique_ptr<collectives::Work> begin_gather(int64_t layer);
  // What was written to the layer is lost. REQUIRES: is_whole(layer).
  void release(int64_t layer);
  bool is_whole(int64_t layer) const;

 private:
  ShardMap map_;
  std::vector<at::Tensor> layers_;
  collectives::Communicator& ranks_;
  at::Tensor shard_;
};

}  // namespace headroom::zero
