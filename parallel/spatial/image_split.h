// ImageSplit: which rows of an image, and of every map made from it, lie on
// which rank. Pure.
//
// Rows are dealt out in blocks of the network's largest stride, in nearly equal
// consecutive runs, so that every map of the network is cut at whole rows and
// upsampling and concatenation stay local. Example, 224 rows in blocks of 32
// over 3 ranks:
//
//   rank            0        1          2
//   blocks          0 1 2    3 4        5 6
//   image rows      0..95    96..159    160..223
//   stride 8        0..11    12..19     20..27
//   stride 32       0..2     3..4       5..6
//
// Threads: a value.
#pragma once

#include <cstdint>

namespace headroom::spatial {

// Rows [begin, end) of a whole map.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

class ImageSplit {
 public:
  // The first blocks % spatial_parallel_size ranks hold one block more. Throws
  // Error with the numbers when there are more ranks than blocks.
  // REQUIRES: positive arguments, image_rows a multiple of block_rows.
  ImageSplit(int64_t image_rows, int64_t block_rows, int spatial_parallel_size);

  int spatial_parallel_size() const { return size_; }
  int64_t num_blocks() const { return num_blocks_; }

  RowRange blocks_of(int rank) const;
  RowRange image_rows_of(int rank) const;

  // The rows that `rank` holds of a map with `rows_per_block` rows per block.
  RowRange rows_of(int rank, int64_t rows_per_block) const;

  // Of a map of which `rank` holds `local_rows`.
  // REQUIRES: local_rows is a multiple of the rank's blocks.
  int64_t rows_per_block(int rank, int64_t local_rows) const;

 private:
  int64_t block_rows_;
  int64_t num_blocks_;
  int size_;
};

}  // namespace headroom::spatial
