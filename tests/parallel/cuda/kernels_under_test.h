// The kernels that a test runs: those of the plugin on a card (test_cuda), or
// the same source compiled for the CPU (test_cuda_bodies).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "worker/kernels/device_kernels.h"

namespace headroom::cuda {

struct KernelsUnderTest {
  kernels::DeviceKernels* kernels = nullptr;
  c10::Device device;
  std::string missing;  // the reason if there are no kernels

  at::Tensor there(const at::Tensor& tensor) const {
    return tensor.defined() ? tensor.to(device, tensor.scalar_type(),
                                        /*non_blocking=*/false, /*copy=*/true)
                            : tensor;
  }
};

const KernelsUnderTest& under_test();

}  // namespace headroom::cuda

// Skips a test by name if there are no kernels.
#define HEADROOM_NEEDS_KERNELS()                                           \
  if (const std::string& missing = ::headroom::cuda::under_test().missing; \
      !missing.empty())                                                    \
  GTEST_SKIP() << missing
