// A kernel that does no work, but occupies as many blocks of a card as NCCL's
// kernel would while it waits for peers. Other kernels get the remaining
// blocks.
#include <cuda_runtime_api.h>

namespace {

// NCCL's kernels have the same number of threads.
constexpr int kThreads = 512;

__device__ unsigned long long now() {
  unsigned long long nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

__global__ void __launch_bounds__(kThreads)
    hold(unsigned long long nanoseconds) {
  if (threadIdx.x == 0) {
    const unsigned long long begin = now();
    while (now() - begin < nanoseconds) {
    }
  }
  __syncthreads();
}

}  // namespace

// Returns CUDA's error code, or 0 if the kernel was launched.
extern "C" __attribute__((visibility("default"))) int headroom_ghost_hold(
    void* stream, int blocks, unsigned long long nanoseconds) {
  hold<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(nanoseconds);
  return static_cast<int>(cudaGetLastError());
}
