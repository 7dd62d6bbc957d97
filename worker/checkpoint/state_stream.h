// StateStream: moves a training state that is split over many ranks to rank 0,
// tensor by tensor, and back.
//
// A file contains named whole tensors; a rank holds slices of layers of flat
// buffers. One layer of one buffer is moved at a time. So rank 0 needs memory
// for only one layer in addition to its own state (while reading or writing,
// for a layer and its largest tensor), whatever the layout. Other ranks need no
// additional memory.
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
      int64_t offset = 0;  // first element in the block
    };
    std::string name;   // name of the buffer; "" for a constant
    int64_t layer = 0;  // number in the model's table
    int stage = 0;
    int64_t buffer = 0;  // number of the add() call; sorts before stage
    int64_t size = 0;    // in elements
    bool sharded = false;
    at::ScalarType type = at::kFloat;
    std::vector<Entry> entries;
  };

  // `mesh` is nullptr if this rank has the whole state and acts alone.
  explicit StateStream(collectives::Mesh* mesh) : mesh_(mesh) {}

  // Add a buffer or a constant to the stream. All ranks must add the same ones,
  // in the order of the file. `prefix` is put before names.
  void add(const step::TrainingState::Buffer& buffer,
           const std::string& prefix);
  void add(const model::NamedTensor& constant);
  // Call after the last add(): rank 0 receives the lists of blocks of other
  // stages. Collective.
  void connect();
  // Call after connect(): gives the root's list of blocks to all ranks, so that
  // each can write the file from copies of all parts. Collective.
  void share_blocks();

  bool is_root() const { return mesh_ == nullptr || mesh_->world.rank() == 0; }
  // Blocks in the order of the file: the blocks of all stages at the root, and
  // after share_blocks() at every rank.
  const std::vector<Block>& blocks() const { return all_; }
  std::vector<weights::TensorDescription> tensors() const;

  // At the root, calls `take` with each of tensors() in order, row-major. The
  // root allocates its copies in host memory before it communicates, and
  // retries if memory is short. Collective.
  void collect(const std::function<void(const at::Tensor&)>& take,
               const memory::MemoryRetry& retry = {});
  // At the root, calls `give` to fill each of tensors() in order. Collective.
  void distribute(
      const std::function<void(const std::string&, at::Tensor&)>& give);
  // Like distribute(), but `give` returns a whole layer, [block.size].
  void distribute_layers(
      const std::function<const at::Tensor&(const Block&)>& give);

 private:
  struct Move;
  std::vector<Move> moves_to_root(const Block& block) const;
  std::vector<Move> moves_from_root(const Block& block) const;
  int world_rank(int stage, int data_rank, int spatial_rank) const;
  int here() const { return mesh_ == nullptr ? 0 : mesh_->world.rank(); }
  // Visits the blocks in order. `mine` is this rank's part, undefined for
  // blocks of other stages.
  void for_each_block(
      const std::function<void(const Block&, const at::Tensor& mine)>& visit);

  collectives::Mesh* mesh_;
  int64_t num_buffers_ = 0;
  std::vector<Block> own_;
  std::vector<at::Tensor> parts_;  // values of own_: whole or this rank's slice
  std::vector<Block> all_;         // the result of blocks()
};

// Blocks as text, for other ranks and for files.
std::string blocks_to_text(const std::vector<StateStream::Block>& blocks);
std::vector<StateStream::Block> blocks_from_text(const std::string& text);

// A view of one of a layer's entries.
at::Tensor view_of(const at::Tensor& layer,
                   const StateStream::Block::Entry& entry);

// The tensors of blocks, in the order of the file.
std::vector<weights::TensorDescription> tensors_of(
    const std::vector<StateStream::Block>& blocks);

int64_t largest_block_bytes(const std::vector<StateStream::Block>& blocks);

// Calls `take` with each tensor of a block, row-major. `layer` is the whole
// layer, [block.size]; `memory` is a buffer with at least as many bytes.
void take_tensors(const StateStream::Block& block, const at::Tensor& layer,
                  const at::Tensor& memory,
                  const std::function<void(const at::Tensor&)>& take);

}  // namespace headroom::checkpoint
