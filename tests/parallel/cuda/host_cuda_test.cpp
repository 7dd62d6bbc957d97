// Tests the emulated card (tests/support/host_cuda) on which the kernels are
// tested: blocks, barriers, shuffles, and refused code.
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "tests/support/host_cuda/cuda_runtime.h"

namespace headroom::host_cuda {
namespace {

TEST(HostCuda, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> ran(3 * 2 * 2 * 5 * 4);
  run_grid(dim3(3, 2, 2), dim3(5, 4), [&] {
    const unsigned block =
        (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    ++ran[(block * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x];
  });
  EXPECT_EQ(ran, std::vector<int>(ran.size(), 1));
}

// Each step adds one half of the values to the other half, as kernels do. The
// result is wrong if a barrier has no effect.
TEST(HostCuda, BarriersSeparateTheWorkOfThreads) {
  constexpr unsigned kThreads = 256;
  std::vector<int> values(kThreads), sums;
  run_grid(dim3(2), dim3(kThreads), [&] {
    values[threadIdx.x] = static_cast<int>(threadIdx.x);
    for (unsigned half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
    }
    __syncthreads();
    if (threadIdx.x == kThreads - 1) sums.push_back(values[0]);
  });
  EXPECT_EQ(sums, std::vector<int>(2, kThreads * (kThreads - 1) / 2));
}

TEST(HostCuda, ThreadsThatEndedAreNotWaitedFor) {
  int arrived = 0;
  run_grid(dim3(1), dim3(64), [&] {
    if (threadIdx.x >= 40) return;
    __syncthreads();
    ++arrived;
  });
  EXPECT_EQ(arrived, 40);
}

TEST(HostCuda, ShufflesStayInTheirWarp) {
  std::vector<double> sums(96);
  run_grid(dim3(1), dim3(8, 12), [&] {
    const unsigned own = threadIdx.y * blockDim.x + threadIdx.x;
    double sum = own;
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    }
    sums[own] = sum;
  });
  for (unsigned own = 0; own < 96; ++own) {
    const double first = own / 32 * 32;
    EXPECT_EQ(sums[own], 32 * first + 31 * 16) << own;
  }
}

TEST(HostCuda, CodeThatACardWouldRefuseOrHangInIsAnError) {
  EXPECT_THROW(run_grid(dim3(1), dim3(1025), [] {}), std::logic_error);
  EXPECT_THROW(run_grid(dim3(0), dim3(32), [] {}), std::logic_error);
  EXPECT_THROW(run_grid(dim3(1, 65536), dim3(32), [] {}), std::logic_error);
  // Half of a warp waits for the other half, which waits for the block.
  EXPECT_THROW(run_grid(dim3(1), dim3(32),
                        [] {
                          if (threadIdx.x < 16) {
                            __shfl_xor_sync(0xffffffffu, 1, 1);
                          } else {
                            __syncthreads();
                          }
                        }),
               std::logic_error);
  int ran = 0;
  run_grid(dim3(1), dim3(32), [&] { ++ran; });
  EXPECT_EQ(ran, 32) << "the next grid runs";
}

}  // namespace
}  // namespace headroom::host_cuda
