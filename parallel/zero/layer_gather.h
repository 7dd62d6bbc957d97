// Values that rest as shards and are whole, layer by layer, only while they are
// needed: ZeRO 3's parameters; the averaged weights of ZeRO 1 to 3.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/zero/shard_map.h"

namespace headroom::zero {

// Owns the shard; keeps the layers' buffers, borrows the ranks. Used by the
// thread that runs the step. Errors: CommunicationError; c10::OutOfMemoryError
// before a rank has taken part in a gather, so that it can still do so.
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

// The memory of a layer comes and goes under tensors that stay. Its flat buffer
// has a storage of its own; parameters are windows into it, which autograd
// keeps, so freeing tensors would not free the memory. The storage object stays
// and only what it points to is released and allocated again (as PyTorch's FSDP
// does).
//
// Nobody may touch a value of the layer until restore_memory().
// REQUIRES: a tensor that covers its storage.
void release_memory(const at::Tensor& flat);

// Allocates it again, uninitialised. Throws c10::OutOfMemoryError; nothing has
// changed then.
// REQUIRES: released.
void restore_memory(const at::Tensor& flat);

bool has_memory(const at::Tensor& flat);

}  // namespace headroom::zero
