// Batch norm and activation on a device: batch_norm_body.h with barriers
// between.
//
// Memory bounds their speed: forward reads y twice and writes once, backward
// reads y and the gradient twice and writes once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "parallel/cuda/kernels/launch.h"

namespace headroom::cuda {
namespace {

enum class Pass { kValueSums, kNormalise, kGradientSums, kNormGradient };

constexpr int kReduceColumns = 32;  // channels of a block that adds chunks
constexpr int kReduceRows = 16;

__device__ ThreadPlace own_place() {
  return {static_cast<int>(threadIdx.x),
          static_cast<int>(threadIdx.y),
          static_cast<int>(blockDim.x),
          static_cast<int>(blockDim.y),
          blockIdx.x,
          static_cast<int>(blockIdx.y),
          static_cast<int>(blockIdx.z)};
}

template <Pass kPass, typename T, int V>
__global__ void __launch_bounds__(256) run_pass(const BatchNormMap<T> map) {
  const ThreadPlace place = own_place();
  if constexpr (kPass == Pass::kNormalise) {
    normalise<T, V>(map, place);
  } else if constexpr (kPass == Pass::kNormGradient) {
    normalise_backward<T, V>(map, place);
  } else {
    using A = Accumulator<T>;
    __shared__ A shared[256 * 2 * V];
    put_sums<A, V>(shared, place,
                   kPass == Pass::kValueSums ? sum_values<T, V>(map, place)
                                             : sum_gradients<T, V>(map, place));
    for (int half = place.size_y / 2; half > 0; half /= 2) {
      __syncthreads();
      fold_sums<A, V>(shared, place, half);
    }
    __syncthreads();
    write_partial<T, V>(map, place, shared);
  }
}

// The chunks' sums of 32 channels of one group, by 16 rows of threads.
template <Pass kPass, typename T>
__global__ void add_up(const BatchNormMap<T> map, double* sums) {
  __shared__ double shared[kReduceRows][2][kReduceColumns];
  const int64_t channel =
      static_cast<int64_t>(blockIdx.x) * kReduceColumns + threadIdx.x;
  const int group = static_cast<int>(blockIdx.y);
  double own[2] = {};
  if (channel < map.channels) {
    add_chunks(map, group, channel, static_cast<int>(threadIdx.y), kReduceRows,
               own);
  }
  shared[threadIdx.y][0][threadIdx.x] = own[0];
  shared[threadIdx.y][1][threadIdx.x] = own[1];
  __syncthreads();
  if (threadIdx.y != 0 || channel >= map.channels) return;
  for (int row = 1; row < kReduceRows; ++row) {
    own[0] += shared[row][0][threadIdx.x];
    own[1] += shared[row][1][threadIdx.x];
  }
  if constexpr (kPass == Pass::kValueSums) {
    finish_value_sums(map, group, channel, own);
  } else {
    finish_gradient_sums(map, group, channel, own);
  }
  double* const to = sums + group * 2 * map.channels + channel;
  to[0] = own[0];
  to[map.channels] = own[1];
}

template <Pass kPass, typename T>
cudaError_t launch(const BatchNormArguments& a, double* sums,
                   cudaStream_t stream) {
  using A = Accumulator<T>;
  const BlockShape shape = block_shape(a);
  BatchNormMap<T> map;
  map.y = static_cast<const T*>(a.y);
  map.gradient = static_cast<const T*>(a.gradient);
  map.gradient_stride = a.gradient_stride;
  map.result = static_cast<T*>(a.result);
  map.statistics = a.statistics;
  map.weight = static_cast<const A*>(a.weight);
  map.bias = static_cast<const A*>(a.bias);
  map.means = a.means;
  map.partial = static_cast<A*>(a.partial);
  map.groups = a.groups;
  map.channels = a.channels;
  map.chunks = chunks_of(a.groups, shape);
  map.activation = a.activation;
  const dim3 grid(static_cast<unsigned>(map.chunks),
                  static_cast<unsigned>(shape.tiles),
                  static_cast<unsigned>(a.groups.count));
  const dim3 block(static_cast<unsigned>(shape.size_x),
                   static_cast<unsigned>(shape.size_y));
  if (shape.vector > 1) {
    run_pass<kPass, T, 16 / sizeof(T)><<<grid, block, 0, stream>>>(map);
  } else {
    run_pass<kPass, T, 1><<<grid, block, 0, stream>>>(map);
  }
  if constexpr (kPass == Pass::kValueSums || kPass == Pass::kGradientSums) {
    const dim3 columns(static_cast<unsigned>((a.channels + kReduceColumns - 1) /
                                             kReduceColumns),
                       static_cast<unsigned>(a.groups.count));
    add_up<kPass, T>
        <<<columns, dim3(kReduceColumns, kReduceRows), 0, stream>>>(map, sums);
  }
  return cudaGetLastError();
}

template <Pass kPass>
int launch_any(const BatchNormArguments& arguments, double* sums,
               void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  switch (arguments.type) {
    case ElementType::kFloat64:
      return launch<kPass, double>(arguments, sums, on);
    case ElementType::kFloat32:
      return launch<kPass, float>(arguments, sums, on);
    case ElementType::kBFloat16:
      return launch<kPass, __nv_bfloat16>(arguments, sums, on);
    case ElementType::kFloat16:
      return launch<kPass, __half>(arguments, sums, on);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

extern "C" {

int headroom_channel_sums(const BatchNormArguments* arguments, double* sums,
                          void* stream) {
  return launch_any<Pass::kValueSums>(*arguments, sums, stream);
}

int headroom_normalise_and_activate(const BatchNormArguments* arguments,
                                    void* stream) {
  return launch_any<Pass::kNormalise>(*arguments, nullptr, stream);
}

int headroom_activation_gradient_sums(const BatchNormArguments* arguments,
                                      double* sums, void* stream) {
  return launch_any<Pass::kGradientSums>(*arguments, sums, stream);
}

int headroom_norm_gradient(const BatchNormArguments* arguments, void* stream) {
  return launch_any<Pass::kNormGradient>(*arguments, nullptr, stream);
}
}

}  // namespace headroom::cuda
