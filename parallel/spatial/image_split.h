// ImageSplit: which rank holds which rows of an image and of its maps.
//
// Rows are divided in blocks of the network's largest stride, into consecutive
// ranges of nearly equal size. So every map of the network is cut between whole
// rows, and upsampling and concatenation need no communication. Example, 224
// rows in blocks of 32 over 3 ranks:
//
//   rank            0        1          2
//   blocks          0 1 2    3 4        5 6
//   image rows      0..95    96..159    160..223
//   stride 8        0..11    12..19     20..27
//   stride 32       0..2     3..4       5..6
#pragma once

#include <cstdint>
#include <vector>

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
  // The first (blocks % spatial_parallel_size) ranks hold one block more.
  // Throws Error with the numbers if there are more ranks than blocks.
  // REQUIRES: positive arguments, image_rows a multiple of block_rows.
  ImageSplit(int64_t image_rows, int64_t block_rows, int spatial_parallel_size);

  int spatial_parallel_size() const { return size_; }
  int64_t num_blocks() const { return num_blocks_; }

  RowRange blocks_of(int rank) const;
  RowRange image_rows_of(int rank) const;

  // The rows that `rank` holds of a map with `rows_per_block` rows per block.
  RowRange rows_of(int rank, int64_t rows_per_block) const;

  // Returns how many rows per block a map has if `rank` holds `local_rows` rows
  // of the map. REQUIRES: local_rows is a multiple of the rank's number of
  // blocks.
  int64_t rows_per_block(int rank, int64_t local_rows) const;

 private:
  int64_t block_rows_;
  int64_t num_blocks_;
  int size_;
};

// HaloPlan: which rows a rank sends and receives to get `top` rows above its
// own and `bottom` rows below.
//
// Every rank computes its plan alone, and the plans match: the rows that rank a
// receives from rank b in a's plan are the rows that b sends to a in b's plan.
// Between two ranks there is at most one message per direction, because the
// rows of one are entirely above those of the other. The halo may span several
// ranks: at the largest stride a rank may own one row.
//
// Example, 2 rows per rank, rank 1 of 4, top = bottom = 3:
//
//   row      -1   0 1   2 3   4 5   6 7
//   owner         r0    own   r2    r3
//   wanted    e   r r         r r   r      e: beyond the edge, filled in

// One message of a plan.
struct HaloPiece {
  int peer = 0;
  RowRange rows;  // rows of the whole map
  bool operator==(const HaloPiece&) const = default;
};

struct HaloPlan {
  RowRange own;
  // Numbers of halo rows outside the whole map. They are the first and the last
  // rows of the halo.
  int64_t rows_above_edge = 0;
  int64_t rows_below_edge = 0;
  // Both lists are sorted by peer, and therefore in row order.
  std::vector<HaloPiece> receives;
  std::vector<HaloPiece> sends;
};

// The halo of a map with `rows_per_block` rows per block. REQUIRES: top, bottom
// >= 0.
HaloPlan plan_halo(const ImageSplit& partition, int64_t rows_per_block,
                   int rank, int64_t top, int64_t bottom);

// The index in the halo of row `row` of the whole map. The halo holds first the
// rows above the rank's own rows, then the rows below them.
int64_t place_in_halo(const HaloPlan& plan, int64_t row, int64_t top);

}  // namespace headroom::spatial
