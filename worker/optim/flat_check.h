// What every function over flat tensors demands of two of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "parallel/base/check.h"

namespace headroom::optim {

inline void check_flat_pair(const char* name_a, const at::Tensor& a,
                            const char* name_b, const at::Tensor& b) {
  const bool alike = a.dim() == 1 && b.dim() == 1 && a.numel() == b.numel() &&
                     a.scalar_type() == b.scalar_type() && a.is_contiguous() &&
                     b.is_contiguous();
  HEADROOM_CHECK(alike, std::string(name_a) + " with " +
                            std::to_string(a.numel()) + " elements and " +
                            name_b + " with " + std::to_string(b.numel()) +
                            " must be flat, of one size and one type");
}

}  // namespace headroom::optim
