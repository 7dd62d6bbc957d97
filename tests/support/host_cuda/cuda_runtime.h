// CUDA's language as host C++. If this folder comes first on the include path,
// g++ compiles the kernels (parallel/cuda/kernels/*.cu) and they run on the
// CPU. So grids, barriers, shared memory and edges are tested without a card,
// and also under the address sanitizer.
//
// The blocks of a grid run one after another. The threads of a block are fibers
// of the calling thread: each runs until it has to wait for others (a barrier,
// a shuffle) or ends, and then the next continues. Memory is the host's.
//
// Races between the threads of a block are not detected, nor effects of the
// weaker memory order of a card.
//
// Threads: any number may launch at a time.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
// A __shared__ variable is one variable for all threads of a block. The address
// sanitizer checks the bounds of static memory, but not of thread-local memory;
// so under the sanitizer the variable is static, and only one grid runs at a
// time.
#ifdef __SANITIZE_ADDRESS__
#define __shared__ static
#else
#define __shared__ static thread_local
#endif

using __nv_bfloat16 = c10::BFloat16;
using __half = c10::Half;

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
using cudaStream_t = void*;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

// The indexes of the running thread.
inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace headroom::host_cuda {

inline constexpr unsigned kWarpSize = 32;
inline constexpr unsigned kMostThreads = 1024;  // per block

// Runs kernel() in every thread of the grid.
// Throws std::logic_error for a grid that a card would refuse, and for a block
// whose threads wait for one another in different places.
void run_grid(const dim3& grid, const dim3& block,
              const std::function<void()>& kernel);

// Waits for all threads of the block that have not ended.
void wait_for_block();
// Publishes `value`, of at most 8 bytes, to the warp, and returns the value of
// the given lane. REQUIRES: all lanes of the warp call this function.
uint64_t exchange_in_warp(uint64_t value, unsigned lane);
unsigned own_lane();

}  // namespace headroom::host_cuda

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  headroom::host_cuda::run_grid(config->gridDim, config->blockDim,
                                [&] { kernel(arguments...); });
  return cudaSuccess;
}

template <typename T>
cudaError_t cudaGetSymbolAddress(void** address, T& symbol) {
  *address = &symbol;
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

inline void __syncthreads() { headroom::host_cuda::wait_for_block(); }
inline void __threadfence() {}

template <typename T>
T __shfl_xor_sync(unsigned, T value, unsigned mask) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  bits = headroom::host_cuda::exchange_in_warp(
      bits, headroom::host_cuda::own_lane() ^ mask);
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T>
T atomicAdd(T* to, T value) {
  return __atomic_fetch_add(to, value, __ATOMIC_SEQ_CST);
}

template <typename T>
T atomicMax(T* to, T value) {
  T seen = __atomic_load_n(to, __ATOMIC_SEQ_CST);
  while (seen < value &&
         !__atomic_compare_exchange_n(to, &seen, value, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST)) {
  }
  return seen;
}

inline void __stcg(uint4* to, const uint4& value) { *to = value; }
