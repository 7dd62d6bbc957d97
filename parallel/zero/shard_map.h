// ShardMap: which rank owns which slice of every layer of a model.
//
// Ranks must agree without talking, and a later run must rebuild the map that
// fits its own number of ranks. So it follows from its three arguments alone.
// The unit is a layer, not the whole list of parameters: gathering a layer
// before it runs is then one all_gather, and reducing its gradient one
// reduce_scatter.
//
//   whole    | layer 0: rank 0 | rank 1 | pad | layer 1: rank 0 | rank 1 | pad
//   | shard 0  | layer 0 | layer 1 | shard 1  | layer 0 | layer 1 |
//
// Invariants (offsets and sizes in elements):
//   1. the slices of a layer tile it in rank order: no gap, no overlap;
//   2. they have one size, a multiple of `alignment`;
//   3. padding is at a layer's end, so where an element lies in its layer does
//      not depend on the number of ranks.
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
  // Elements of all layers with their padding.
  int64_t whole_size() const { return shard_size() * num_ranks_; }
  // Elements that one rank owns.
  int64_t shard_size() const { return shard_offsets_.back(); }

  // REQUIRES: 0 <= layer < num_layers(), for all that follow.
  int64_t layer_size(int64_t layer) const { return layer_sizes_.at(layer); }
  int64_t padded_layer_size(int64_t layer) const {
    return slice_size(layer) * num_ranks_;
  }
  int64_t layer_offset(int64_t layer) const {
    return shard_offset(layer) * num_ranks_;
  }
  // The same on every rank.
  int64_t slice_size(int64_t layer) const {
    return shard_offsets_.at(layer + 1) - shard_offsets_.at(layer);
  }
  // The beginning of the layer's slice in a shard, the same on every rank.
  int64_t shard_offset(int64_t layer) const { return shard_offsets_.at(layer); }
  int64_t largest_slice() const;

 private:
  std::vector<int64_t> layer_sizes_;
  int num_ranks_;
  std::vector<int64_t> shard_offsets_;  // one more than layers
};

// One copy of what moves when a layer that was split over one number of ranks
// is to be split over another. Offsets count from the beginning of a rank's
// slice of the layer.
struct RangeCopy {
  int from_rank = 0;
  int64_t from_offset = 0;
  int to_rank = 0;
  int64_t to_offset = 0;
  int64_t size = 0;
  bool operator==(const RangeCopy&) const = default;
};

// The copies in the order of the elements; together they cover each element of
// the layer once, and no padding. To gather a layer for a file is to reshard it
// to one rank; to load it, to reshard it from one.
// REQUIRES: both maps have the layer, with one size.
std::vector<RangeCopy> reshard(const ShardMap& from, const ShardMap& to,
                               int64_t layer);

}  // namespace headroom::zero
