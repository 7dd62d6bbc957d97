#include "parallel/collectives/operand_checks.h"

#include <string>

#include "parallel/base/check.h"

namespace headroom::collectives {

void check_rank(int rank, int size) {
  HEADROOM_CHECK(rank >= 0 && rank < size, "rank " + std::to_string(rank) +
                                               " in a group of " +
                                               std::to_string(size));
}

void check_multiple(const at::Tensor& whole, const at::Tensor& part, int size) {
  HEADROOM_CHECK(whole.numel() == part.numel() * size,
                 std::to_string(whole.numel()) + " elements are not " +
                     std::to_string(size) + " times " +
                     std::to_string(part.numel()));
}

}  // namespace headroom::collectives
