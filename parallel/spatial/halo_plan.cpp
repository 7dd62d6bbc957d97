#include "parallel/spatial/halo_plan.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"

namespace headroom::spatial {
namespace {

// What a rank with rows `own` wants of a rank with rows `other`: these rows
// lie all above or all below its own.
RowRange wanted(const RowRange& own, const RowRange& other, int64_t top,
                int64_t bottom) {
  if (other.end <= own.begin)
    return {std::max(other.begin, own.begin - top), other.end};
  return {other.begin, std::min(other.end, own.end + bottom)};
}

}  // namespace

HaloPlan plan_halo(const ImageSplit& partition, int64_t rows_per_block,
                   int rank, int64_t top, int64_t bottom) {
  HEADROOM_CHECK(top >= 0 && bottom >= 0,
                 "a halo of " + std::to_string(top) + " rows above and " +
                     std::to_string(bottom) + " below");
  HaloPlan plan;
  plan.own = partition.rows_of(rank, rows_per_block);
  const int64_t global_rows = partition.num_blocks() * rows_per_block;
  plan.rows_above_edge = std::max<int64_t>(0, top - plan.own.begin);
  plan.rows_below_edge =
      std::max<int64_t>(0, plan.own.end + bottom - global_rows);
  for (int peer = 0; peer < partition.spatial_parallel_size(); ++peer) {
    if (peer == rank) continue;
    const RowRange theirs = partition.rows_of(peer, rows_per_block);
    const RowRange to_here = wanted(plan.own, theirs, top, bottom);
    const RowRange to_peer = wanted(theirs, plan.own, top, bottom);
    if (to_here.size() > 0) plan.receives.push_back({peer, to_here});
    if (to_peer.size() > 0) plan.sends.push_back({peer, to_peer});
  }
  return plan;
}

int64_t place_in_halo(const HaloPlan& plan, int64_t row, int64_t top) {
  return row < plan.own.begin ? row - (plan.own.begin - top)
                              : row - plan.own.end + top;
}

}  // namespace headroom::spatial
