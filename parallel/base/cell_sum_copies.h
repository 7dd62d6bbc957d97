// How many samples a device sums the cells of at once
// (worker/kernels/cpu/cell_sums.h): it adds in float64 only what is float64,
// and a copy of so many samples is small beside the map.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headroom {

inline int64_t samples_summed_at_once(int64_t elements_of_a_sample) {
  constexpr int64_t kMostElements = int64_t{1} << 20;  // 8 MiB of float64
  return std::max<int64_t>(
      1, kMostElements / std::max<int64_t>(1, elements_of_a_sample));
}

}  // namespace headroom
