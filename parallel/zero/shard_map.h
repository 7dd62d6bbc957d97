// ShardMap: which rank owns which slice of every layer of a model.
//
// The map depends only on its three arguments, so ranks agree without
// communication, and a later run can build the map for its own number of ranks.
// Each layer is split on its own, not the list of all parameters: then
// gathering a layer before it runs is one all_gather, and reducing its gradient
// one reduce_scatter.
//
//   whole    | layer 0: rank 0 | rank 1 | pad | layer 1: rank 0 | rank 1 | pad
//   | shard 0  | layer 0 | layer 1 | shard 1  | layer 0 | layer 1 |
//
// Invariants (offsets and sizes in elements):
//   1. the slices of a layer tile it in rank order: no gap, no overlap;
//   2. they have one size, a multiple of `alignment`;
//   3. padding is at a layer's end, so the position of an element in its layer
//      does not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::zero {

class ShardMap {
 public:
  // REQUIRES: layer_sizes >= 0, num_ranks > 0, alignment > 0.
  ShardMap(const std::vector<int64_t>& layer_sizes, int num_ranks,
           int64_t alignment);

  int num_ranks() const { return num_ranks_; }
  int64_t num_layers() const {
    return static_cast<int64_t>(layer_sizes_.size());
  }
  // Elements of all layers, padding included.
  int64_t whole_size() const { return shard_size() * num_ranks_; }
  // Elements that one rank owns.
  int64_t shard_size() const { return shard_offsets_.back(); }

  // REQUIRES for the functions below: 0 <= layer < num_layers().
  int64_t layer_size(int64_t layer) const { return layer_sizes_.at(layer); }
  int64_t padded_layer_size(int64_t layer) const {
    return slice_size(layer) * num_ranks_;
  }
  int64_t layer_offset(int64_t layer) const {
    return shard_offset(layer) * num_ranks_;
  }
  // Elements of the layer on one rank; equal on all ranks.
  int64_t slice_size(int64_t layer) const {
    return shard_offsets_.at(layer + 1) - shard_offsets_.at(layer);
  }
  // Offset of the layer's slice in a shard; equal on all ranks.
  int64_t shard_offset(int64_t layer) const { return shard_offsets_.at(layer); }
  int64_t largest_slice() const;

 private:
  std::vector<int64_t> layer_sizes_;
  int num_ranks_;
  // num_layers() + 1 elements
  std::vector<int64_t> shard_offsets_;
};

// One copy in resharding a layer from one number of ranks to another. Offsets
// are relative to the beginning of a rank's slice of the layer.
struct RangeCopy {
  int from_rank = 0;
  int64_t from_offset = 0;
  int to_rank = 0;
  int64_t to_offset = 0;
  int64_t size = 0;
  bool operator==(const RangeCopy&) const = default;
};

// The copies in element order; they cover each element once, without padding.
// Gathering a layer for a file is resharding to one rank, and loading it is
// resharding from one rank. REQUIRES: both maps have the layer, with equal
// size.
std::vector<RangeCopy> reshard(const ShardMap& from, const ShardMap& to,
                               int64_t layer);

}  // namespace headroom::zero
