#include "parallel/zero/reshard.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"

namespace headroom::zero {

std::vector<RangeCopy> reshard(const ShardMap& from, const ShardMap& to,
                               int64_t layer) {
  const int64_t size = from.layer_size(layer);
  HEADROOM_CHECK(to.layer_size(layer) == size,
                 "layer " + std::to_string(layer) + " has " +
                     std::to_string(size) + " elements in one map, " +
                     std::to_string(to.layer_size(layer)) + " in the other");
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
