#include "worker/data/augment/row_kernels.h"

namespace headroom::augment {

// row_kernels.cpp is compiled once for each of these functions.
const RowKernels& row_kernels_baseline();
#if defined(__x86_64__)
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();
#endif

const RowKernels* row_kernels_of(RowInstructionSet instruction_set) {
  switch (instruction_set) {
    case RowInstructionSet::kBaseline:
      return &row_kernels_baseline();
#if defined(__x86_64__)
    case RowInstructionSet::kAvx2:
      return __builtin_cpu_supports("avx2") ? &row_kernels_avx2() : nullptr;
    case RowInstructionSet::kAvx512:
      return __builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq")
                 ? &row_kernels_avx512()
                 : nullptr;
#endif
    default:
      return nullptr;
  }
}

const RowKernels& row_kernels() {
  static const RowKernels* const avx512 =
      row_kernels_of(RowInstructionSet::kAvx512);
  static const RowKernels* const avx2 =
      row_kernels_of(RowInstructionSet::kAvx2);
  if (avx512 != nullptr) return *avx512;
  return avx2 != nullptr ? *avx2 : row_kernels_baseline();
}

}  // namespace headroom::augment
