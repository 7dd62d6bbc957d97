#include "parallel/cuda/kernels/flat_buffer_body.h"
#include "parallel/cuda/kernels/launch_kernel.h"

#include <cuda_runtime.h>

namespace headroom::cuda {
namespace {

constexpr int kThreads = 256;

template <FlatBufferRule kRule, typename T>
__global__ void __launch_bounds__(kThreads)
    run_piece(const FlatBufferArrays<T> arrays,
              const FlatBufferCoefficients<T> coefficients,
              const FlatBufferPiece* pieces) {
  update_piece<kRule>(arrays, coefficients, pieces[blockIdx.x],
                      static_cast<int>(threadIdx.x), kThreads);
}

template <typename T>
int launch(FlatBufferRule rule, const FlatBufferArrays<T>& arrays,
           const FlatBufferCoefficients<T>& coefficients,
           const FlatBufferPiece* pieces, int64_t num_pieces, void* stream) {
  if (num_pieces == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(num_pieces);
  const auto with = [&](auto kernel) {
    return launch_kernel(kernel, blocks, kThreads, stream, arrays, coefficients,
                         pieces);
  };
  return rule == FlatBufferRule::kSgd
             ? with(run_piece<FlatBufferRule::kSgd, T>)
             : with(run_piece<FlatBufferRule::kAdam, T>);
}

}  // namespace
}  // namespace headroom::cuda

extern "C" {

int headroom_flat_buffer_step_float(
    headroom::cuda::FlatBufferRule rule,
    const headroom::cuda::FlatBufferArrays<float>* arrays,
    const headroom::cuda::FlatBufferCoefficients<float>* coefficients,
    const headroom::cuda::FlatBufferPiece* pieces, int64_t num_pieces,
    void* stream) {
  return headroom::cuda::launch(rule, *arrays, *coefficients, pieces,
                                num_pieces, stream);
}

int headroom_flat_buffer_step_double(
    headroom::cuda::FlatBufferRule rule,
    const headroom::cuda::FlatBufferArrays<double>* arrays,
    const headroom::cuda::FlatBufferCoefficients<double>* coefficients,
    const headroom::cuda::FlatBufferPiece* pieces, int64_t num_pieces,
    void* stream) {
  return headroom::cuda::launch(rule, *arrays, *coefficients, pieces,
                                num_pieces, stream);
}
}
