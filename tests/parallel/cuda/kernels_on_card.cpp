#include "tests/parallel/cuda/kernels_under_test.h"
#include "tests/parallel/cuda/plugin.h"

namespace headroom::cuda {

const KernelsUnderTest& under_test() {
  static const KernelsUnderTest card = {
      missing_device().empty() ? &plugin().api->kernels() : nullptr,
      {at::kCUDA, 0},
      missing_device()};
  return card;
}

}  // namespace headroom::cuda
