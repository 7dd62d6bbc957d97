#include "parallel/spatial/image_split.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"

namespace headroom::spatial {

ImageSplit::ImageSplit(int64_t image_rows, int64_t block_rows,
                       int spatial_parallel_size)
    : block_rows_(block_rows), num_blocks_(0), size_(spatial_parallel_size) {
  HEADROOM_CHECK(image_rows > 0 && block_rows > 0 &&
                     image_rows % block_rows == 0 && size_ > 0,
                 std::to_string(image_rows) + " rows in blocks of " +
                     std::to_string(block_rows) + " over " +
                     std::to_string(size_) + " ranks");
  num_blocks_ = image_rows / block_rows;
  if (size_ > num_blocks_) {
    const std::string blocks = std::to_string(num_blocks_);
    throw Error("layout",
                "spatial = " + std::to_string(size_) + " > " +
                    std::to_string(image_rows) + " image rows / " +
                    std::to_string(block_rows) +
                    " (the largest stride) = " + blocks,
                "use spatial=" + blocks + " or less, or images of at least " +
                    std::to_string(size_ * block_rows) + " rows");
  }
}

RowRange ImageSplit::blocks_of(int rank) const {
  HEADROOM_CHECK(
      rank >= 0 && rank < size_,
      "spatial rank " + std::to_string(rank) + " of " + std::to_string(size_));
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
                 std::to_string(local_rows) + " rows on a rank of " +
                     std::to_string(blocks) + " blocks");
  return local_rows / blocks;
}

}  // namespace headroom::spatial
