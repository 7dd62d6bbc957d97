#include <cuda_runtime.h>

#include "parallel/cuda/kernels/launch_kernel.h"
#include "parallel/cuda/kernels/loss_body.h"

namespace headroom::cuda {
namespace {

constexpr int kWarps = kLossThreads / kLanes;
constexpr unsigned kAllLanes = 0xffffffffu;

// Returns the sum in every lane, always added in the same order.
__device__ double warp_sum(double value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, mask);
  }
  return value;
}

// The grid is blocks x levels x parts.
template <typename T>
__global__ void __launch_bounds__(kLossThreads, kBlocksAtATime)
    loss_kernel(const __grid_constant__ LossArguments arguments) {
  const int number = static_cast<int>(blockIdx.y);
  const LossLevel& level = arguments.levels[number];
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const auto block = static_cast<int64_t>(blockIdx.x);
  LossSums sums;
  if (blockIdx.z == 0) {
    for (int64_t cell = block * kLossThreads + threadIdx.x;
         cell < level.num_cells; cell += arguments.blocks * kLossThreads) {
      sums.of[1] += cell_loss<T>(arguments, level, cell);
    }
  } else {
    const int64_t count = *level.num_matches;
    for (int64_t match = block * kWarps + warp; match < count;
         match += arguments.blocks * kWarps) {
      const LossSums one = match_loss<T>(arguments, level, match, lane);
      for (int item = 0; item < kLossSums; ++item) {
        sums.of[item] += one.of[item];
      }
    }
  }
  __shared__ double of_warps[kWarps][kLossSums];
  for (int item = 0; item < kLossSums; ++item) {
    const double sum = warp_sum(sums.of[item]);
    if (lane == 0) of_warps[warp][item] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= kLossSums) return;
  double sum = 0;
  for (int of = 0; of < kWarps; ++of) sum += of_warps[of][threadIdx.x];
  const int64_t place =
      (number * kLossParts + static_cast<int>(blockIdx.z)) * arguments.blocks +
      block;
  arguments.partial[place * kLossSums + threadIdx.x] = sum;
}

// Runs as one block, with a warp for each level and item.
__global__ void finish_kernel(const __grid_constant__ LossArguments arguments) {
  __shared__ double sums[kLossLevels * kLossSums];
  const int number = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const double sum = warp_sum(
      level_sum(arguments, number / kLossSums, number % kLossSums, lane));
  if (lane == 0) sums[number] = sum;
  __syncthreads();
  if (threadIdx.x == 0) write_loss(arguments, sums);
}

template <typename T, typename G, int V>
__global__ void __launch_bounds__(kLossThreads, kBlocksAtATime)
    pixel_gradient_kernel(const __grid_constant__ LossArguments arguments) {
  const int number = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t pixel = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
       pixel < arguments.levels[number].num_pixels; pixel += step) {
    pixel_gradient<T, G, V>(arguments, number, pixel, lane);
  }
}

template <typename T, typename G>
__global__ void __launch_bounds__(kLossThreads, kBlocksAtATime)
    match_gradient_kernel(const __grid_constant__ LossArguments arguments) {
  const int number = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  const int64_t count = *arguments.levels[number].num_matches;
  for (int64_t match = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
       match < count; match += step) {
    match_gradient<T, G>(arguments, number, match, lane);
  }
}

template <typename T>
int forward(const LossArguments& arguments, void* stream) {
  const auto levels = static_cast<unsigned>(arguments.num_levels);
  const dim3 grid(static_cast<unsigned>(arguments.blocks), levels, kLossParts);
  const cudaError_t error =
      launch_kernel(loss_kernel<T>, grid, kLossThreads, stream, arguments);
  if (error != cudaSuccess) return error;
  return launch_kernel(finish_kernel, 1, levels * kLossSums * kLanes, stream,
                       arguments);
}

// Gradients are most of the bytes, so more blocks are used than for the sums.
// Lanes write 16 bytes at a time if the gradient has 16 bits; other gradients
// may have an odd number of channels.
template <typename T, typename G>
int backward(const LossArguments& arguments, void* stream) {
  constexpr int kWidth = sizeof(G) == 2 ? kVectorBytes / 2 : 1;
  constexpr unsigned kBlocksOfSums = 8;
  const auto levels = static_cast<unsigned>(arguments.num_levels);
  const auto blocks = static_cast<unsigned>(arguments.blocks);
  const cudaError_t error = launch_kernel(pixel_gradient_kernel<T, G, kWidth>,
                                          dim3(kBlocksOfSums * blocks, levels),
                                          kLossThreads, stream, arguments);
  if (error != cudaSuccess) return error;
  return launch_kernel(match_gradient_kernel<T, G>, dim3(blocks, levels),
                       kLossThreads, stream, arguments);
}

}  // namespace
}  // namespace headroom::cuda

extern "C" {

int headroom_loss(const headroom::cuda::LossArguments* arguments,
                  void* stream) {
  using namespace headroom::cuda;
  return arguments->is_double ? forward<double>(*arguments, stream)
                              : forward<float>(*arguments, stream);
}

int headroom_loss_gradient(const headroom::cuda::LossArguments* arguments,
                           void* stream) {
  using namespace headroom::cuda;
  switch (arguments->gradient_type) {
    case ElementType::kFloat64:
      return backward<double, double>(*arguments, stream);
    case ElementType::kFloat32:
      return backward<float, float>(*arguments, stream);
    case ElementType::kBFloat16:
      return backward<float, __nv_bfloat16>(*arguments, stream);
    case ElementType::kFloat16:
      return backward<float, __half>(*arguments, stream);
  }
  return cudaErrorInvalidValue;
}
}
