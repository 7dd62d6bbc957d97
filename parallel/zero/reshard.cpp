#include "parallel/zero/reshard.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"

namespace headroom::zero {

std::vector<RangeCopy> reshard(const ShardMap& from, const ShardMap& to,
                               int64_t row) {
  const int64_t size = from.row_size(row);
  HEADROOM_CHECK(to.row_size(row) == size,
                 "row " + std::to_string(row) + " has " + std::to_string(size) +
                     " elements in one map, " +
                     std::to_string(to.row_size(row)) + " in the other");
  std::vector<RangeCopy> copies;
  for (int64_t begin = 0; begin < size;) {
    RangeCopy copy;
    copy.from_rank = static_cast<int>(begin / from.slice_size(row));
    copy.from_offset = begin % from.slice_size(row);
    copy.to_rank = static_cast<int>(begin / to.slice_size(row));
    copy.to_offset = begin % to.slice_size(row);
    copy.size = std::min({from.slice_size(row) - copy.from_offset,
                          to.slice_size(row) - copy.to_offset, size - begin});
    copies.push_back(copy);
    begin += copy.size;
  }
  return copies;
}

}  // namespace headroom::zero
