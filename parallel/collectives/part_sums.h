// Element-wise sums and maxima over the parts of several ranks.
//
// Pure: the order is that of the parts, so the same values give the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

// target[i] = parts[0][i] op parts[1][i] op …; it may be one of the parts.
template <typename Scalar>
void reduce_parts(std::span<const Scalar* const> parts, ReduceOp op,
                  int64_t count, Scalar* target) {
  // In pieces that stay in the first-level cache.
  constexpr int64_t kPiece = 1024;
  std::array<Scalar, kPiece> sum;
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t size = std::min(kPiece, count - begin);
    std::copy_n(parts[0] + begin, size, sum.begin());
    for (size_t part = 1; part < parts.size(); ++part) {
      const Scalar* const values = parts[part] + begin;
      if (op == ReduceOp::kSum) {
        for (int64_t i = 0; i < size; ++i) sum[i] += values[i];
      } else {
        for (int64_t i = 0; i < size; ++i) sum[i] = std::max(sum[i], values[i]);
      }
    }
    std::copy_n(sum.begin(), size, target + begin);
  }
}

}  // namespace headroom::collectives
