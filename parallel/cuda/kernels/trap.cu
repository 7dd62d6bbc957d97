#include <cuda_runtime.h>

#include "parallel/cuda/kernels/trap.h"

namespace headroom::cuda {
namespace {

__global__ void trap() { __trap(); }

}  // namespace

extern "C" int headroom_trap(void* stream) {
  trap<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>();
  return cudaGetLastError();
}

}  // namespace headroom::cuda
