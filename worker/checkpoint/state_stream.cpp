#include "worker/checkpoint/state_stream.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/collectives/gather.h"
#include "parallel/zero/shard_map.h"

namespace headroom::checkpoint {
namespace {

using Json = nlohmann::json;
using Block = StateStream::Block;

constexpr int64_t kAlignmentBytes = 64;  // as in flat_buffer.h

Json to_json(const Block& block) {
  Json entries = Json::array();
  for (const Block::Entry& entry : block.entries) {
    entries.push_back({entry.name, entry.sizes, entry.strides, entry.offset});
  }
  return {block.stage,
          block.buffer,
          block.size,
          block.sharded,
          static_cast<int>(block.type),
          entries,
          block.name,
          block.layer};
}

Block block_from_json(const Json& json) {
  Block block;
  block.stage = json.at(0).get<int>();
  block.buffer = json.at(1).get<int64_t>();
  block.size = json.at(2).get<int64_t>();
  block.sharded = json.at(3).get<bool>();
  block.type = static_cast<at::ScalarType>(json.at(4).get<int>());
  for (const Json& entry : json.at(5)) {
    block.entries.push_back({entry.at(0).get<std::string>(),
                             entry.at(1).get<std::vector<int64_t>>(),
                             entry.at(2).get<std::vector<int64_t>>(),
                             entry.at(3).get<int64_t>()});
  }
  block.name = json.at(6).get<std::string>();
  block.layer = json.at(7).get<int64_t>();
  return block;
}

// The order of the file; blocks with equal keys keep the order of add().
bool comes_before(const Block& a, const Block& b) {
  const auto key = [](const Block& block) {
    return std::tuple(-static_cast<int64_t>(c10::elementSize(block.type)),
                      block.buffer, block.stage);
  };
  return key(a) < key(b);
}

// A view of the first `elements` elements of a byte buffer.
at::Tensor part_of(const at::Tensor& bytes, int64_t elements,
                   at::ScalarType type) {
  return bytes
      .narrow(0, 0, elements * static_cast<int64_t>(c10::elementSize(type)))
      .view(type);
}

}  // namespace

at::Tensor view_of(const at::Tensor& layer, const Block::Entry& entry) {
  return layer.as_strided(entry.sizes, entry.strides,
                          layer.storage_offset() + entry.offset);
}

std::string blocks_to_text(const std::vector<Block>& blocks) {
  Json list = Json::array();
  for (const Block& block : blocks) list.push_back(to_json(block));
  return list.dump();
}

std::vector<Block> blocks_from_text(const std::string& text) {
  std::vector<Block> blocks;
  for (const Json& block : Json::parse(text)) {
    blocks.push_back(block_from_json(block));
  }
  return blocks;
}

std::vector<weights::TensorDescription> tensors_of(
    const std::vector<Block>& blocks) {
  std::vector<weights::TensorDescription> tensors;
  for (const Block& block : blocks) {
    for (const Block::Entry& entry : block.entries) {
      tensors.push_back({entry.name, block.type, entry.sizes});
    }
  }
  return tensors;
}

int64_t largest_block_bytes(const std::vector<Block>& blocks) {
  int64_t bytes = 0;
  for (const Block& block : blocks) {
    bytes = std::max(
        bytes, block.size * static_cast<int64_t>(c10::elementSize(block.type)));
  }
  return bytes;
}

void take_tensors(const Block& block, const at::Tensor& layer,
                  const at::Tensor& memory,
                  const std::function<void(const at::Tensor&)>& take) {
  for (const Block::Entry& entry : block.entries) {
    const at::Tensor view = view_of(layer, entry);
    const at::Tensor copy =
        part_of(memory, view.numel(), block.type).view(view.sizes());
    copy.copy_(view);
    take(copy);
  }
}

// A copy of `size` elements between the root's whole layer and a part.
struct StateStream::Move {
  int rank = 0;  // rank in the world
  int64_t part_offset = 0;
  int64_t layer_offset = 0;
  int64_t size = 0;
};

void StateStream::add(const step::TrainingState::Buffer& buffer,
                      const std::string& prefix) {
  const int64_t index = num_buffers_++;
  const data_parallel::FlatBuffer& flat_buffer = *buffer.flat_buffer;
  for (size_t layer = 0; layer < flat_buffer.layers().size(); ++layer) {
    const data_parallel::FlatBuffer::Layer& place = flat_buffer.layers()[layer];
    const auto part = static_cast<int64_t>(layer);
    Block block;
    block.name = buffer.name;
    block.layer = place.number;
    block.stage = mesh_ == nullptr ? 0 : mesh_->here.pipeline_stage;
    block.buffer = index;
    block.size = place.size;
    block.sharded = buffer.shards != nullptr;
    block.type = buffer.flat->scalar_type();
    for (int64_t slot = place.first_slot; slot < place.last_slot; ++slot) {
      const at::Tensor& entry = flat_buffer.entry(slot);
      const data_parallel::FlatBuffer::Slot& at =
          flat_buffer.slots()[static_cast<size_t>(slot)];
      block.entries.push_back({prefix + at.name, entry.sizes().vec(),
                               entry.strides().vec(),
                               at.offset - place.offset});
    }
    own_.push_back(std::move(block));
    parts_.push_back(
        buffer.shards == nullptr
            ? buffer.flat->narrow(0, place.offset, place.size)
            : buffer.flat->narrow(0, buffer.shards->shard_offset(part),
                                  buffer.shards->slice_size(part)));
  }
}

void StateStream::add(const model::NamedTensor& constant) {
  const at::Tensor& tensor = *constant.tensor;
  HEADROOM_CHECK(tensor.is_contiguous(), constant.name + " is not contiguous");
  Block block;
  block.stage = mesh_ == nullptr ? 0 : mesh_->here.pipeline_stage;
  block.buffer = num_buffers_;  // constants follow all buffers
  block.size = tensor.numel();
  block.type = tensor.scalar_type();
  block.entries.push_back(
      {constant.name, tensor.sizes().vec(), tensor.strides().vec(), 0});
  own_.push_back(std::move(block));
  parts_.push_back(tensor.detach().view({-1}));
}

void StateStream::connect() {
  std::vector<size_t> order(own_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    return comes_before(own_[a], own_[b]);
  });
  std::vector<Block> blocks;
  std::vector<at::Tensor> parts;
  for (const size_t i : order) {
    blocks.push_back(std::move(own_[i]));
    parts.push_back(std::move(parts_[i]));
  }
  own_ = std::move(blocks);
  parts_ = std::move(parts);
  all_ = own_;
  if (mesh_ == nullptr || mesh_->layout.pipeline_parallel_size == 1) return;

  // One rank of each stage sends the stage's list of blocks.
  const bool speaks =
      mesh_->here.data_parallel_rank == 0 && mesh_->here.spatial_rank == 0;
  all_.clear();
  for (const std::string& text : collectives::gather_bytes(
           mesh_->world, blocks_to_text(speaks ? own_ : all_))) {
    for (Block& block : blocks_from_text(text)) {
      all_.push_back(std::move(block));
    }
  }
  std::stable_sort(all_.begin(), all_.end(), comes_before);
}

void StateStream::share_blocks() {
  if (mesh_ == nullptr || mesh_->layout.pipeline_parallel_size == 1) return;
  const std::string text = collectives::broadcast_bytes(
      mesh_->world, is_root() ? blocks_to_text(all_) : "", 0);
  if (!is_root()) all_ = blocks_from_text(text);
}

std::vector<weights::TensorDescription> StateStream::tensors() const {
  return tensors_of(all_);
}

int StateStream::world_rank(int stage, int data_rank, int spatial_rank) const {
  return mesh_ == nullptr
             ? 0
             : plan::rank_of(mesh_->layout, {stage, data_rank, spatial_rank});
}

std::vector<StateStream::Move> StateStream::moves_to_root(
    const Block& block) const {
  if (!block.sharded) {
    return {{world_rank(block.stage, 0, 0), 0, 0, block.size}};
  }
  const zero::ShardMap slices(
      {block.size}, mesh_->layout.data_parallel_size,
      kAlignmentBytes / static_cast<int64_t>(c10::elementSize(block.type)));
  std::vector<Move> moves;
  for (const zero::RangeCopy& copy :
       zero::reshard(slices, zero::ShardMap({block.size}, 1, 1), 0)) {
    moves.push_back({world_rank(block.stage, copy.from_rank, 0),
                     copy.from_offset, copy.to_offset, copy.size});
  }
  return moves;
}

std::vector<StateStream::Move> StateStream::moves_from_root(
    const Block& block) const {
  if (mesh_ == nullptr) return moves_to_root(block);
  const plan::ParallelLayout& layout = mesh_->layout;
  std::vector<Move> moves;
  for (int spatial = 0; spatial < layout.spatial_parallel_size; ++spatial) {
    if (!block.sharded) {
      for (int data = 0; data < layout.data_parallel_size; ++data) {
        moves.push_back(
            {world_rank(block.stage, data, spatial), 0, 0, block.size});
      }
      continue;
    }
    for (Move move : moves_to_root(block)) {
      move.rank += spatial;  // spatial ranks are adjacent
      moves.push_back(move);
    }
  }
  return moves;
}

void StateStream::for_each_block(
    const std::function<void(const Block&, const at::Tensor&)>& visit) {
  const int stage = mesh_ == nullptr ? 0 : mesh_->here.pipeline_stage;
  size_t own = 0;
  for (const Block& block : is_root() ? all_ : own_) {
    const bool is_own = block.stage == stage;
    visit(block, is_own ? parts_.at(own) : at::Tensor());
    if (is_own) ++own;
  }
}

void StateStream::collect(const std::function<void(const at::Tensor&)>& take,
                          const memory::MemoryRetry& retry) {
  const at::NoGradGuard no_grad;
  const activations::CountingAllocator::HostMemory host;
  // Allocate everything now, because peers wait once the exchange has begun.
  at::Tensor memory, dense;
  if (is_root()) {
    retry.run([&] {
      memory = at::empty({largest_block_bytes(all_)}, at::kByte);
      dense = at::empty({largest_block_bytes(all_)}, at::kByte);
    });
  }
  for_each_block([&](const Block& block, const at::Tensor& mine) {
    at::Tensor layer;
    if (is_root()) layer = part_of(memory, block.size, block.type);
    for (const Move& move : moves_to_root(block)) {
      if (is_root()) {
        const at::Tensor target = layer.narrow(0, move.layer_offset, move.size);
        if (move.rank == here()) {
          target.copy_(mine.narrow(0, move.part_offset, move.size));
        } else {
          mesh_->world.recv(target, move.rank);
        }
      } else if (move.rank == here()) {
        mesh_->world.send(mine.narrow(0, move.part_offset, move.size), 0);
      }
    }
    if (!is_root()) return;
    take_tensors(block, layer, dense, take);
  });
}

void StateStream::distribute(
    const std::function<void(const std::string&, at::Tensor&)>& give) {
  at::Tensor layer;
  distribute_layers([&](const Block& block) -> const at::Tensor& {
    layer = at::empty({block.size}, block.type);
    layer.zero_();  // entries do not cover the whole layer
    for (const Block::Entry& entry : block.entries) {
      at::Tensor view = view_of(layer, entry);
      give(entry.name, view);
    }
    return layer;
  });
}

void StateStream::distribute_layers(
    const std::function<const at::Tensor&(const Block&)>& give) {
  const at::NoGradGuard no_grad;
  for_each_block([&](const Block& block, const at::Tensor& mine) {
    at::Tensor layer;
    if (is_root()) layer = give(block);
    for (const Move& move : moves_from_root(block)) {
      if (is_root()) {
        const at::Tensor source = layer.narrow(0, move.layer_offset, move.size);
        if (move.rank == here()) {
          mine.narrow(0, move.part_offset, move.size).copy_(source);
        } else {
          mesh_->world.send(source, move.rank);
        }
      } else if (move.rank == here()) {
        mesh_->world.recv(mine.narrow(0, move.part_offset, move.size), 0);
      }
    }
  });
}

}  // namespace headroom::checkpoint
