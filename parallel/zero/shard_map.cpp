#include "parallel/zero/shard_map.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::zero {

ShardMap::ShardMap(const std::vector<int64_t>& layer_sizes, int num_ranks,
                   int64_t alignment)
    : layer_sizes_(layer_sizes), num_ranks_(num_ranks), shard_offsets_{0} {
  HEADROOM_CHECK(num_ranks > 0 && alignment > 0,
                 cat(num_ranks, " ranks, alignment ", alignment));
  const int64_t multiple = num_ranks * alignment;
  for (const int64_t size : layer_sizes) {
    HEADROOM_CHECK(size >= 0, cat("a layer of ", size, " elements"));
    shard_offsets_.push_back(shard_offsets_.back() +
                             divided_up(size, multiple) * alignment);
  }
}

int64_t ShardMap::largest_slice() const {
  int64_t largest = 0;
  for (int64_t layer = 0; layer < num_layers(); ++layer) {
    largest = std::max(largest, slice_size(layer));
  }
  return largest;
}

std::vector<RangeCopy> reshard(const ShardMap& from, const ShardMap& to,
                               int64_t layer) {
  const int64_t size = from.layer_size(layer);
  HEADROOM_CHECK(to.layer_size(layer) == size,
                 cat("layer ", layer, " has ", size, " elements in one map, ",
                     to.layer_size(layer), " in the other"));
  std::vector<RangeCopy> copies;
  for (int64_t begin = 0; begin < size;) {
    RangeCopy copy;
    copy.from_rank = static_cast<int>(begin / from.slice_size(layer));
    copy.from_offset = begin % from.slice_size(layer);
    copy.to_rank = static_cast<int>(begin / to.slice_size(layer));
    copy.to_offset = begin % to.slice_size(layer);
    copy.size = std::min({from.slice_size(layer) - copy.from_offset,
                          to.slice_size(layer) - copy.to_offset, size - begin});
    copies.push_back(copy);
    begin += copy.size;
  }
  return copies;
}

}  // namespace headroom::zero
