// LayerGather: values that are stored as shards, and gathered layer by layer
// only while they are needed. It holds ZeRO 3's parameters, and the averaged
// weights of ZeRO 1 to 3.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/zero/shard_map.h"

namespace headroom::zero {

// Owns the shard, keeps the layers' buffers, and borrows the communicator. Used
// by the thread that runs the step. Errors: CommunicationError;
// c10::OutOfMemoryError, which is thrown before this rank takes part in the
// gather, so that it can call the gather again.
class LayerGather {
 public:
  // Copies its slices out of `layers` and releases their memory. layers[i] is
  // flat, has padded_layer_size(i) elements in a storage of its own, and is
  // equal on all ranks. REQUIRES: ranks.size() == map.num_ranks().
  LayerGather(const ShardMap& map, std::vector<at::Tensor> layers,
              collectives::Communicator& ranks);

  // This rank's slices as a flat tensor of map.shard_size() elements. These are
  // the stored values.
  at::Tensor& shard() { return shard_; }

  // Collective: gathers the layer's current values on every rank.
  void gather(int64_t layer) { begin_gather(layer)->wait(); }
  // Starts a gather. Do not use the layer or release its memory before wait().
  std::unique_ptr<collectives::Work> begin_gather(int64_t layer);
  // Frees the gathered layer; changes to it are lost. REQUIRES:
  // is_whole(layer).
  void release(int64_t layer);
  bool is_whole(int64_t layer) const;

 private:
  ShardMap map_;
  std::vector<at::Tensor> layers_;
  collectives::Communicator& ranks_;
  at::Tensor shard_;
};

// release_memory, restore_memory: free and allocate the memory of a layer while
// its tensors exist. The parameters are views of the layer's flat buffer, and
// autograd keeps them, so destroying tensors would not free the memory. Instead
// the storage object is kept, and only the memory it points to is released and
// allocated again (as PyTorch's FSDP does).
//
// The layer's values must not be accessed until restore_memory(). REQUIRES: a
// tensor that covers its whole storage.
void release_memory(const at::Tensor& flat);

// Allocates the memory again, uninitialised. If it throws
// c10::OutOfMemoryError, nothing has changed. REQUIRES: !has_memory(flat).
void restore_memory(const at::Tensor& flat);

bool has_memory(const at::Tensor& flat);

}  // namespace headroom::zero
