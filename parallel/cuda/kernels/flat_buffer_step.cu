#include "parallel/base/units.h"
#include "parallel/cuda/kernels/flat_buffer_body.h"
#include "parallel/cuda/kernels/launch_kernel.h"

#include <cuda_runtime.h>

namespace headroom::cuda {
namespace {

constexpr int kThreads = 256, kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// Returns the block's sum in thread 0, always added in the same order. All
// threads of the block must call it.
__device__ double block_sum(double value) {
  __shared__ double values[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  values[thread] = value;
  __syncthreads();
  if (thread >= kLanes) return 0;
  double sum = 0;
  for (int i = thread; i < kThreads; i += kLanes) sum += values[i];
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, mask);
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(const __grid_constant__ FlatBufferArguments arguments) {
  if (!arguments.numbers->ends_step) return;
  const double sum =
      block_sum(squares_of_piece<T>(arguments, arguments.pieces[blockIdx.x],
                                    static_cast<int>(threadIdx.x), kThreads));
  if (threadIdx.x == 0) arguments.partial[blockIdx.x] = sum;
}

// Runs as one block.
__global__ void __launch_bounds__(kThreads)
    decide_kernel(const __grid_constant__ DecisionArguments arguments) {
  if (!arguments.numbers->ends_step) return;
  double own = 0;
  for (int64_t i = threadIdx.x; i < arguments.count; i += kThreads) {
    own += arguments.partial[i];
  }
  const double sum = block_sum(own);
  if (threadIdx.x == 0) decide(arguments, sum);
}

template <bool kIsAdam, typename T>
__global__ void __launch_bounds__(kThreads, kBlocksAtATime)
    commit_kernel(const __grid_constant__ FlatBufferArguments arguments) {
  if (!is_committed(arguments)) return;
  commit_piece<kIsAdam, T>(arguments, arguments.pieces[blockIdx.x],
                           static_cast<int>(threadIdx.x), kThreads);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    running_kernel(const __grid_constant__ RunningArguments arguments) {
  if (!is_committed(arguments)) return;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < arguments.size) move_running_element<T>(arguments, i);
}

template <typename Kernel>
int launch_pieces(Kernel kernel, const FlatBufferArguments& arguments,
                  void* stream) {
  if (arguments.num_pieces == 0) return cudaSuccess;
  return launch_kernel(kernel, static_cast<unsigned>(arguments.num_pieces),
                       kThreads, stream, arguments);
}

}  // namespace
}  // namespace headroom::cuda

extern "C" {

int headroom_gradient_squares(
    const headroom::cuda::FlatBufferArguments* arguments, void* stream) {
  using namespace headroom::cuda;
  return launch_pieces(
      arguments->is_double ? squares_kernel<double> : squares_kernel<float>,
      *arguments, stream);
}

int headroom_decide(const headroom::cuda::DecisionArguments* arguments,
                    void* stream) {
  using namespace headroom::cuda;
  return launch_kernel(decide_kernel, 1, kThreads, stream, *arguments);
}

int headroom_commit(const headroom::cuda::FlatBufferArguments* arguments,
                    void* stream) {
  using namespace headroom::cuda;
  if (arguments->second_moment != nullptr) {
    return launch_pieces(arguments->is_double ? commit_kernel<true, double>
                                              : commit_kernel<true, float>,
                         *arguments, stream);
  }
  return launch_pieces(arguments->is_double ? commit_kernel<false, double>
                                            : commit_kernel<false, float>,
                       *arguments, stream);
}

int headroom_move_running(const headroom::cuda::RunningArguments* arguments,
                          void* stream) {
  using namespace headroom::cuda;
  if (arguments->size == 0) return cudaSuccess;
  const auto blocks =
      static_cast<unsigned>(headroom::divided_up(arguments->size, kThreads));
  return launch_kernel(
      arguments->is_double ? running_kernel<double> : running_kernel<float>,
      blocks, kThreads, stream, *arguments);
}
}
