#include "tests/parallel/cuda/kernels_under_test.h"
#include "tests/support/test_device/emulated_kernels.h"

namespace headroom::cuda {

const KernelsUnderTest& under_test() {
  static EmulatedKernels kernels;
  static const KernelsUnderTest cpu = {&kernels, at::kCPU, ""};
  return cpu;
}

}  // namespace headroom::cuda
