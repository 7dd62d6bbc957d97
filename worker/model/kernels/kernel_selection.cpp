#include "worker/model/kernels/vector_kernels.h"

namespace headroom {

// Defined by the objects that vector_kernels.cpp is compiled to.
const VectorKernels<float>& float_kernels_baseline();
const VectorKernels<float>& float_kernels_avx2();
const VectorKernels<float>& float_kernels_avx512();
const VectorKernels<double>& double_kernels_baseline();
const VectorKernels<double>& double_kernels_avx2();
const VectorKernels<double>& double_kernels_avx512();

namespace {

bool processor_has(InstructionSet instruction_set) {
  switch (instruction_set) {
    case InstructionSet::kBaseline:
      return true;
    case InstructionSet::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case InstructionSet::kAvx512:
      return __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq");
  }
  return false;
}

template <typename T>
const VectorKernels<T>& best_kernels() {
  for (InstructionSet set : {InstructionSet::kAvx512, InstructionSet::kAvx2}) {
    if (const VectorKernels<T>* kernels = vector_kernels_of<T>(set))
      return *kernels;
  }
  return *vector_kernels_of<T>(InstructionSet::kBaseline);
}

}  // namespace

template <>
const VectorKernels<float>* vector_kernels_of(InstructionSet instruction_set) {
  if (!processor_has(instruction_set)) return nullptr;
  switch (instruction_set) {
    case InstructionSet::kBaseline:
      return &float_kernels_baseline();
    case InstructionSet::kAvx2:
      return &float_kernels_avx2();
    case InstructionSet::kAvx512:
      return &float_kernels_avx512();
  }
  return nullptr;
}

template <>
const VectorKernels<double>* vector_kernels_of(InstructionSet instruction_set) {
  if (!processor_has(instruction_set)) return nullptr;
  switch (instruction_set) {
    case InstructionSet::kBaseline:
      return &double_kernels_baseline();
    case InstructionSet::kAvx2:
      return &double_kernels_avx2();
    case InstructionSet::kAvx512:
      return &double_kernels_avx512();
  }
  return nullptr;
}

template <>
const VectorKernels<float>& vector_kernels<float>() {
  static const VectorKernels<float>& kernels = best_kernels<float>();
  return kernels;
}

template <>
const VectorKernels<double>& vector_kernels<double>() {
  static const VectorKernels<double>& kernels = best_kernels<double>();
  return kernels;
}

}  // namespace headroom
