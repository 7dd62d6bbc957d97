// A kernel that does nothing for a while, in as many blocks as NCCL's would
// occupy: what a collective with absent peers leaves to the others of a card.
#include <cuda_runtime_api.h>

namespace {

// As many threads as NCCL's kernels have.
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

// CUDA's error; 0: launched.
extern "C" __attribute__((visibility("default"))) int headroom_ghost_hold(
    void* stream, int blocks, unsigned long long nanoseconds) {
  hold<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(nanoseconds);
  return static_cast<int>(cudaGetLastError());
}
