// ShardMap: which rank owns which slice of every row of a model.
//
// Ranks must agree without talking, and a later run must rebuild the map that
// fits its own number of ranks. So it follows from its three arguments alone.
// The unit is a row, not the whole list of parameters: gathering a row before
// it runs is then one all_gather, and reducing its gradient one reduce_scatter.
//
//   whole    | row 0: rank 0 | rank 1 | pad | row 1: rank 0 | rank 1 | pad |
//   shard 0  | row 0 | row 1 |
//   shard 1  | row 0 | row 1 |
//
// Ownership: a value; holds no tensor. Threads: immutable once built.
// Invariants (offsets and sizes in elements):
//   1. the slices of a row tile it in rank order: no gap, no overlap;
//   2. they have one size, a multiple of `alignment`;
//   3. padding is at a row's end, so where an element lies in its row does not
//      depend on the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::zero {

class ShardMap {
 public:
  // REQUIRES: row_sizes >= 0, num_ranks > 0, alignment > 0.
  ShardMap(const std::vector<int64_t>& row_sizes, int num_ranks,
           int64_t alignment);

  int num_ranks() const { return num_ranks_; }
  int64_t num_rows() const { return static_cast<int64_t>(row_sizes_.size()); }
  // Of all rows with their padding.
  int64_t whole_size() const { return shard_size() * num_ranks_; }
  // Of what one rank owns.
  int64_t shard_size() const { return shard_offsets_.back(); }

  // REQUIRES: 0 <= row < num_rows(), for all that follow.
  int64_t row_size(int64_t row) const { return row_sizes_.at(row); }
  int64_t padded_row_size(int64_t row) const {
    return slice_size(row) * num_ranks_;
  }
  int64_t row_offset(int64_t row) const {
    return shard_offset(row) * num_ranks_;
  }
  // The same on every rank.
  int64_t slice_size(int64_t row) const {
    return shard_offsets_.at(row + 1) - shard_offsets_.at(row);
  }
  // Of the row's slice within a shard, the same on every rank.
  int64_t shard_offset(int64_t row) const { return shard_offsets_.at(row); }
  int64_t largest_slice() const;

 private:
  std::vector<int64_t> row_sizes_;
  int num_ranks_;
  std::vector<int64_t> shard_offsets_;  // one more than rows
};

}  // namespace headroom::zero
