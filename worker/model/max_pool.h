// max_pool: the largest of each window of a map, with a stride of 1 as all
// layers have it.
//
// On the CPU it is LibTorch's. On a device the kernels are the project's own
// (worker/kernels/map_kernels.h): what backward keeps is a byte for each
// element instead of the input and an index of 8 bytes. Windows wider than a
// byte can tell (parallel/base/device_scratch.h) are LibTorch's there as well.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::model {

// x [N, C, H, W]. Columns beyond the map and `rows_beyond` rows above and below
// it are lower than everything: [N, C, H + 2 * rows_beyond - window + 1, W],
// channels-last.
// REQUIRES: an odd window; rows_beyond <= window / 2.
at::Tensor max_pool(const at::Tensor& x, int64_t window, int64_t rows_beyond);

}  // namespace headroom::model
