#include "parallel/spatial/image_split.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::spatial {
namespace {

// Returns which rows of `other` belong to the halo of the rows `own`, which
// needs `top` rows above and `bottom` rows below. `other` is above or below
// `own`.
RowRange wanted(const RowRange& own, const RowRange& other, int64_t top,
                int64_t bottom) {
  if (other.end <= own.begin)
    return {std::max(other.begin, own.begin - top), other.end};
  return {other.begin, std::min(other.end, own.end + bottom)};
}

}  // namespace

ImageSplit::ImageSplit(int64_t image_rows, int64_t block_rows,
                       int spatial_parallel_size)
    : block_rows_(block_rows), num_blocks_(0), size_(spatial_parallel_size) {
  HEADROOM_CHECK(image_rows > 0 && block_rows > 0 &&
                     image_rows % block_rows == 0 && size_ > 0,
                 cat(image_rows, " rows in blocks of ", block_rows, " over ",
                     size_, " ranks"));
  num_blocks_ = image_rows / block_rows;
  if (size_ > num_blocks_) {
    const std::string blocks = std::to_string(num_blocks_);
    throw Error("layout",
                cat("spatial = ", size_, " > ", image_rows, " image rows / ",
                    block_rows, " (the largest stride) = ", blocks),
                cat("use spatial=", blocks, " or less, or images of at least ",
                    size_ * block_rows, " rows"));
  }
}

RowRange ImageSplit::blocks_of(int rank) const {
  HEADROOM_CHECK(rank >= 0 && rank < size_,
                 cat("spatial rank ", rank, " of ", size_));
  const int64_t each = num_blocks_ / size_;
  const int64_t with_one_more = num_blocks_ % size_;
  const int64_t begin = rank * each + std::min<int64_t>(rank, with_one_more);
  return {begin, begin + each + (rank < with_one_more ? 1 : 0)};
}

RowRange ImageSplit::image_rows_of(int rank) const {
  return rows_of(rank, block_rows_);
}

RowRange ImageSplit::rows_of(int rank, int64_t rows_per_block) const {
  const RowRange blocks = blocks_of(rank);
  return {blocks.begin * rows_per_block, blocks.end * rows_per_block};
}

int64_t ImageSplit::rows_per_block(int rank, int64_t local_rows) const {
  const int64_t blocks = blocks_of(rank).size();
  HEADROOM_CHECK(local_rows > 0 && local_rows % blocks == 0,
                 cat(local_rows, " rows on a rank of ", blocks, " blocks"));
  return local_rows / blocks;
}

HaloPlan plan_halo(const ImageSplit& partition, int64_t rows_per_block,
                   int rank, int64_t top, int64_t bottom) {
  HEADROOM_CHECK(top >= 0 && bottom >= 0,
                 cat("a halo of ", top, " rows above and ", bottom, " below"));
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
