// HaloPlan: which rows a rank sends and receives so that it sees `top` rows
// above its own and `bottom` rows below. Pure.
//
// Every rank makes its plan alone; they fit together: what rank a's plan
// receives from b is what b's plan sends to a. Between two ranks there is at
// most one message per direction, since one lies above the other. Rows wanted
// may lie with several ranks: at the largest stride a rank may own one row.
//
// Example, 2 rows per rank, rank 1 of 4, top = bottom = 3:
//
//   row      -1   0 1   2 3   4 5   6 7
//   owner         r0    own   r2    r3
//   wanted    e   r r         r r   r      e: beyond the edge, filled in
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/spatial/image_split.h"

namespace headroom::spatial {

// One message of a plan.
struct HaloPiece {
  int peer = 0;
  RowRange rows;  // of the whole map
  bool operator==(const HaloPiece&) const = default;
};

struct HaloPlan {
  RowRange own;
  // Rows wanted that no rank has; they are the first and the last of the halo.
  int64_t rows_above_edge = 0;
  int64_t rows_below_edge = 0;
  // Both by peer, hence in row order.
  std::vector<HaloPiece> receives;
  std::vector<HaloPiece> sends;
};

// For a map with `rows_per_block` rows per block. REQUIRES: top, bottom >= 0.
HaloPlan plan_halo(const ImageSplit& partition, int64_t rows_per_block,
                   int rank, int64_t top, int64_t bottom);

// Where row `row` of a received piece stands in the halo, which is the rows
// above the own ones and then those below.
int64_t place_in_halo(const HaloPlan& plan, int64_t row, int64_t top);

}  // namespace headroom::spatial
