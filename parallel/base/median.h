// The median of a list of values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace headroom {

// The middle value; of an even number of values the larger of the middle two.
// NaN if there is no value.
inline double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace headroom
