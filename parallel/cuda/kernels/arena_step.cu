#include "parallel/cuda/kernels/arena_step.h"

#include <cuda_runtime.h>

namespace headroom::cuda {
namespace {

constexpr int kThreads = 256;

template <ArenaRule kRule, typename T>
__global__ void __launch_bounds__(kThreads)
    run_piece(const ArenaArrays<T> arrays,
              const ArenaCoefficients<T> coefficients,
              const ArenaPiece* pieces) {
  update_piece<kRule>(arrays, coefficients, pieces[blockIdx.x],
                      static_cast<int>(threadIdx.x), kThreads);
}

template <typename T>
int launch(ArenaRule rule, const ArenaArrays<T>& arrays,
           const ArenaCoefficients<T>& coefficients, const ArenaPiece* pieces,
           int64_t num_pieces, void* stream) {
  if (num_pieces == 0) return cudaSuccess;
  const auto on = static_cast<cudaStream_t>(stream);
  const auto blocks = static_cast<unsigned>(num_pieces);
  if (rule == ArenaRule::kSgd) {
    run_piece<ArenaRule::kSgd>
        <<<blocks, kThreads, 0, on>>>(arrays, coefficients, pieces);
  } else {
    run_piece<ArenaRule::kAdam>
        <<<blocks, kThreads, 0, on>>>(arrays, coefficients, pieces);
  }
  return cudaGetLastError();
}

}  // namespace
}  // namespace headroom::cuda

extern "C" {

int headroom_arena_step_float(
    headroom::cuda::ArenaRule rule, const headroom::cuda::ArenaArrays<float>* arrays,
    const headroom::cuda::ArenaCoefficients<float>* coefficients,
    const headroom::cuda::ArenaPiece* pieces, int64_t num_pieces, void* stream) {
  return headroom::cuda::launch(rule, *arrays, *coefficients, pieces, num_pieces,
                          stream);
}

int headroom_arena_step_double(
    headroom::cuda::ArenaRule rule, const headroom::cuda::ArenaArrays<double>* arrays,
    const headroom::cuda::ArenaCoefficients<double>* coefficients,
    const headroom::cuda::ArenaPiece* pieces, int64_t num_pieces, void* stream) {
  return headroom::cuda::launch(rule, *arrays, *coefficients, pieces, num_pieces,
                          stream);
}
}
