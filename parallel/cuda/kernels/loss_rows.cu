#include <cuda_runtime.h>

#include "parallel/cuda/kernels/launch_kernel.h"
#include "parallel/cuda/kernels/loss_body.h"

namespace headroom::cuda {
namespace {

constexpr int kThreads = 128;

__device__ int64_t own_row() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) fit_kernel(FitArguments arguments) {
  if (own_row() < arguments.rows) fit_one_row<T>(arguments, own_row());
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    entropy_kernel(EntropyArguments arguments) {
  if (own_row() < arguments.count) one_entropy<T>(arguments, own_row());
}

unsigned blocks_of(int64_t rows) {
  return static_cast<unsigned>((rows + kThreads - 1) / kThreads);
}

}  // namespace
}  // namespace headroom::cuda

extern "C" {

int headroom_fit_rows(const headroom::cuda::FitArguments* arguments,
                      void* stream) {
  using namespace headroom::cuda;
  if (arguments->rows == 0) return cudaSuccess;
  return launch_kernel(
      arguments->is_double ? fit_kernel<double> : fit_kernel<float>,
      blocks_of(arguments->rows), kThreads, stream, *arguments);
}

int headroom_entropies(const headroom::cuda::EntropyArguments* arguments,
                       void* stream) {
  using namespace headroom::cuda;
  if (arguments->count == 0) return cudaSuccess;
  return launch_kernel(
      arguments->is_double ? entropy_kernel<double> : entropy_kernel<float>,
      blocks_of(arguments->count), kThreads, stream, *arguments);
}
}
