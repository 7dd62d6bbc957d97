// Binary search.
#pragma once

#include <cstdint>

namespace headroom::planner {

// The last number in [holds, fails) for which `test` returns true. Assumes that
// `test` is true for `holds`, false for `fails`, and changes only once between
// them. `test` is not called for these two numbers.
template <typename Test>
int64_t last_that_holds(int64_t holds, int64_t fails, const Test& test) {
  while (holds + 1 < fails) {
    const int64_t middle = holds + (fails - holds) / 2;
    (test(middle) ? holds : fails) = middle;
  }
  return holds;
}

}  // namespace headroom::planner
