// max_pool: the maximum over each window of a map, with stride 1.
//
// The CPU uses LibTorch. A device uses the project's own kernels
// (worker/kernels/device_kernels.h), which keep one byte per element for
// backward instead of the input and an 8-byte index. Windows too wide for a
// byte (parallel/base/device_scratch.h) use LibTorch there as well.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::model {

// x [N, C, H, W]. Columns beyond the map, and `rows_beyond` rows above and
// below it, count as minus infinity. Returns [N, C, H + 2 * rows_beyond -
// window + 1, W], channels-last. REQUIRES: an odd window; rows_beyond <= window
// / 2.
at::Tensor max_pool(const at::Tensor& x, int64_t window, int64_t rows_beyond);

}  // namespace headroom::model
