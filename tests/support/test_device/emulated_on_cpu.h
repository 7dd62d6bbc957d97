// EmulatedOnCpu: while it exists, tensors on the CPU are processed by a
// device's kernels, whose source is compiled for the CPU. Threads: it must be
// created and destroyed while no other thread uses kernels.
#pragma once

#include "tests/support/test_device/emulated_kernels.h"
#include "worker/kernels/cpu/kernel_registration.h"

namespace headroom {

class EmulatedOnCpu {
 public:
  EmulatedOnCpu() { kernels::set_device_kernels(at::kCPU, &kernels_); }
  ~EmulatedOnCpu() { kernels::set_device_kernels(at::kCPU, nullptr); }
  EmulatedOnCpu(const EmulatedOnCpu&) = delete;
  EmulatedOnCpu& operator=(const EmulatedOnCpu&) = delete;

 private:
  EmulatedKernels kernels_;
};

}  // namespace headroom
