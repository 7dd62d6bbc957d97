// StateStream: a training state that lies in parts on many ranks, tensor by
// tensor at rank 0, and back.
//
// A file knows logical tensors under their names; a rank knows slices of layers
// of flat buffers. The unit that travels is one layer of one buffer, so rank 0
// holds, beyond its own state, one layer at a time (a layer and its largest
// tensor while reading or writing), whatever the layout; other ranks hold
// nothing.
//
//   ranks of a stage   --slices, by reshard-->  rank 0  -->  file, in order
//
// Errors: CommunicationError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/collectives/mesh.h"
#include "worker/memory/memory_ladder.h"
#include "worker/model/layer.h"
#include "worker/step/training_state.h"
#include "worker/weights/safetensors.h"

namespace headroom::checkpoint {

class StateStream {
 public:
  // One layer of one buffer, or one constant.
  struct Block {
    struct Entry {
      std::string name;
      std::vector<int64_t> sizes, strides;
      int64_t offset = 0;  // its first element in the block
    };
    std::string name;   // the buffer's; "" for a constant
    int64_t layer = 0;  // a layer of the model's table
    int stage = 0;
    int64_t buffer = 0;  // order in the file, then by stage and layer
    int64_t size = 0;    // counted in elements
    bool sharded = false;
    at::ScalarType type = at::kFloat;
    std::vector<Entry> entries;
  };

  // A rank that has everything gives no mesh and acts alone.
  explicit StateStream(collectives::Mesh* mesh) : mesh_(mesh) {}

  // Called for the same things on all ranks, in the order of the file. Names
  // get `prefix`.
  void add(const step::TrainingState::Buffer& buffer,
           const std::string& prefix);
  void add(const model::NamedTensor& constant);
  // Collective, after the last add(): rank 0 learns what other stages hold.
  void connect();

  bool is_root() const { return mesh_ == nullptr || mesh_->world.rank() == 0; }
  // Blocks in the order of the file; the root has those of all stages.
  const std::vector<Block>& blocks() const { return all_; }
  std::vector<weights::TensorDescription> tensors() const;

  // The root's `take` gets each of tensors() in order, row-major. The root's
  // copies are host memory; where that is short it retries before it meets its
  // peers. Collective.
  void collect(const std::function<void(const at::Tensor&)>& take,
               const memory::MemoryRetry& retry = {});
  // The root's `give` fills each of tensors() in order. Collective.
  void distribute(
      const std::function<void(const std::string&, at::Tensor&)>& give);
  // Distributes whole layers: `give` fills each, [block.size], at the root.
  void distribute_layers(
      const std::function<const at::Tensor&(const Block&)>& give);

 private:
  struct Move;
  std::vector<Move> moves_to_root(const Block& block) const;
  std::vector<Move> moves_from_root(const Block& block) const;
  int world_rank(int stage, int data_rank, int spatial_rank) const;
  int here() const { return mesh_ == nullptr ? 0 : mesh_->world.rank(); }
  // This rank's part of own_[index].
  void for_each_block(
      const std::function<void(const Block&, const at::Tensor& mine)>& visit);

  collectives::Mesh* mesh_;
  int64_t num_buffers_ = 0;
  std::vector<Block> own_;
  std::vector<at::Tensor> parts_;  // own_'s: whole, or this rank's slice
  std::vector<Block> all_;         // known to the root alone
};

// The tensors of blocks, in the order of the file.
std::vector<weights::TensorDescription> tensors_of(
    const std::vector<StateStream::Block>& blocks);

// Bytes of the largest block.
int64_t largest_block_bytes(const std::vector<StateStream::Block>& blocks);

// `take` gets each tensor of a block's whole layer, [block.size], row-major, in
// `memory` of as many bytes as the layer has.
void take_tensors(const StateStream::Block& block, const at::Tensor& layer,
                  const at::Tensor& memory,
                  const std::function<void(const at::Tensor&)>& take);

}  // namespace headroom::checkpoint
