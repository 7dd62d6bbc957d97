#include "parallel/zero/row_gather.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/zero/row_memory.h"

namespace headroom::zero {

RowGather::RowGather(const ShardMap& map, std::vector<at::Tensor> rows,
                     collectives::Communicator& ranks)
    : map_(map), rows_(std::move(rows)), ranks_(ranks) {
  HEADROOM_CHECK(map.num_ranks() == ranks.size() &&
                     map.num_rows() == static_cast<int64_t>(rows_.size()),
                 "a map of " + std::to_string(map.num_rows()) + " rows for " +
                     std::to_string(map.num_ranks()) + " ranks, not " +
                     std::to_string(rows_.size()) + " and " +
                     std::to_string(ranks.size()));
  if (rows_.empty()) return;
  const at::NoGradGuard no_grad;
  shard_ = at::empty({map.shard_size()}, rows_.front().options());
  for (int64_t row = 0; row < map.num_rows(); ++row) {
    const at::Tensor& whole = rows_[static_cast<size_t>(row)];
    HEADROOM_CHECK(whole.numel() == map.padded_row_size(row),
                   "row " + std::to_string(row));
    const int64_t size = map.slice_size(row);
    shard_.narrow(0, map.shard_offset(row), size)
        .copy_(whole.narrow(0, ranks.rank() * size, size));
    release_memory(whole);
  }
}

std::unique_ptr<collectives::Work> RowGather::begin_gather(int64_t row) {
  const at::Tensor& whole = rows_.at(static_cast<size_t>(row));
  restore_memory(whole);
  return ranks_.all_gather_async(
      whole, shard_.narrow(0, map_.shard_offset(row), map_.slice_size(row)));
}

void RowGather::release(int64_t row) {
  release_memory(rows_.at(static_cast<size_t>(row)));
}

bool RowGather::is_whole(int64_t row) const {
  return has_memory(rows_.at(static_cast<size_t>(row)));
}

}  // namespace headroom::zero
