#include "configs/layers/row_time.h"

namespace headroom::layers {

RowTime row_time(const RowCost& row) {
  const double work = row.multiply_adds_per_pixel;
  const double maps = row.kept_elements_per_pixel;
  RowTime time;
  time.keep = 3.75 * work + 240 * maps;
  time.lean = time.keep + 8 * maps;
  // A row without a convolution saves nothing but its inputs.
  time.recompute = work > 0 ? time.keep + work + 48 * maps : time.lean;
  time.offload = time.keep + 58 * maps;
  return time;
}

}  // namespace headroom::layers
