// EmulatedOnCpu: while it lives, maps of the CPU go through a device's kernels,
// which run their text on the CPU. Threads: made and destroyed while no other
// thread uses kernels.
#pragma once

#include "tests/support/test_device/emulated_kernels.h"
#include "worker/kernels/cpu/device_batch_norm.h"

namespace headroom {

class EmulatedOnCpu {
 public:
  EmulatedOnCpu() { kernels::set_map_kernels(at::kCPU, &kernels_); }
  ~EmulatedOnCpu() { kernels::set_map_kernels(at::kCPU, nullptr); }
  EmulatedOnCpu(const EmulatedOnCpu&) = delete;
  EmulatedOnCpu& operator=(const EmulatedOnCpu&) = delete;

  int passes() const { return kernels_.passes(); }

 private:
  EmulatedKernels kernels_;
};

}  // namespace headroom
