// What every backend refuses before anything is sent: programmer errors.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::collectives {

// HEADROOM_CHECK: 0 <= rank < size.
void check_rank(int rank, int size);

// HEADROOM_CHECK: `whole` has `size` times the elements of `part`.
void check_multiple(const at::Tensor& whole, const at::Tensor& part, int size);

}  // namespace headroom::collectives
