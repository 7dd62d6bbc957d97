// launch_kernel: launches every kernel. A function instead of <<<>>>, so that
// the same code is C++ when the host simulates the device
// (tests/support/host_cuda).
#pragma once

#include <cuda_runtime.h>
#ifdef __CUDACC__  // the simulation defines these types itself
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace headroom::cuda {

// The number of blocks that a multiprocessor should run at a time. The compiler
// may then have to spill registers to memory, but more threads hide the latency
// of loads.
inline constexpr int kBlocksAtATime = 4;

// Queues the kernel on a cudaStream_t. Returns a cudaError_t.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const dim3& blocks,
                          const dim3& threads, void* stream,
                          const Arguments&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace headroom::cuda
