// RowGather: values that rest as shards and are whole, row by row, only while
// they are needed (ZeRO 3's parameters; the averaged weights of ZeRO 1 to 3).
//
// Ownership: owns the shard; keeps the rows' buffers, borrows the ranks.
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

class RowGather {
 public:
  // Takes its slices from `rows` and releases their memory. rows[i] is flat,
  // of padded_row_size(i) elements, with a storage of its own, and equal on
  // all ranks.
  // REQUIRES: ranks.size() == map.num_ranks().
  RowGather(const ShardMap& map, std::vector<at::Tensor> rows,
            collectives::Communicator& ranks);

  // [map.shard_size()]: the values between two uses.
  at::Tensor& shard() { return shard_; }

  // Collective: the row's values on every rank, from the shards as they are.
  void gather(int64_t row) { begin_gather(row)->wait(); }
  // The row must not be used, nor its memory released, before wait().
  std::unique_ptr<collectives::Work> begin_gather(int64_t row);
  // What was written to the row is lost. REQUIRES: is_whole(row).
  void release(int64_t row);
  bool is_whole(int64_t row) const;

 private:
  ShardMap map_;
  std::vector<at::Tensor> rows_;
  collectives::Communicator& ranks_;
  at::Tensor shard_;
};

}  // namespace headroom::zero
