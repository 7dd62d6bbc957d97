#include "worker/model/kernels/vector_kernels.h"

namespace headroom {

// Defined by the objects that vector_kernels.cpp is compiled to.
const VectorKernels<float>& float_kernels_baseline();
const VectorKernels<float>& float_kernels_avx2();
const VectorKernels<float>& float_kernels_avx512();
const VectorKernels<double>& double_kernels_baseline();
const VectorKernels<double>& double_kernels_avx2();
const VectorKernels<double>& double_kernels_avx512();
const VectorKernels<BFloat16Element>& bfloat16_kernels_baseline();
const VectorKernels<BFloat16Element>& bfloat16_kernels_avx2();
const VectorKernels<BFloat16Element>& bfloat16_kernels_avx512();
const VectorKernels<Float16Element>& float16_kernels_baseline();
const VectorKernels<Float16Element>& float16_kernels_avx2();
const VectorKernels<Float16Element>& float16_kernels_avx512();

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

// Of one element type, by instruction set.
template <typename Element>
struct Tables {
  const VectorKernels<Element>& (*baseline)();
  const VectorKernels<Element>& (*avx2)();
  const VectorKernels<Element>& (*avx512)();

  const VectorKernels<Element>* of(InstructionSet instruction_set) const {
    if (!processor_has(instruction_set)) return nullptr;
    switch (instruction_set) {
      case InstructionSet::kBaseline:
        return &baseline();
      case InstructionSet::kAvx2:
        return &avx2();
      case InstructionSet::kAvx512:
        return &avx512();
    }
    return nullptr;
  }
};

}  // namespace

#define HEADROOM_SELECT(Element, name)                                      \
  template <>                                                               \
  const VectorKernels<Element>* vector_kernels_of(InstructionSet set) {     \
    return Tables<Element>{name##_kernels_baseline, name##_kernels_avx2,    \
                           name##_kernels_avx512}                           \
        .of(set);                                                           \
  }                                                                         \
  template <>                                                               \
  const VectorKernels<Element>& vector_kernels<Element>() {                 \
    static const VectorKernels<Element>& kernels = best_kernels<Element>(); \
    return kernels;                                                         \
  }
HEADROOM_SELECT(float, float)
HEADROOM_SELECT(double, double)
HEADROOM_SELECT(BFloat16Element, bfloat16)
HEADROOM_SELECT(Float16Element, float16)
#undef HEADROOM_SELECT

}  // namespace headroom
