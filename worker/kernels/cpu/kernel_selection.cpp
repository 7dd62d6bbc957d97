#include "worker/kernels/cpu/vector_kernels.h"

namespace headroom::kernels {

// Defined in the object files that vector_kernels.cpp is compiled to.
const VectorKernels<float>& float_kernels_baseline(layers::ActivationKind);
const VectorKernels<float>& float_kernels_avx2(layers::ActivationKind);
const VectorKernels<float>& float_kernels_avx512(layers::ActivationKind);
const VectorKernels<double>& double_kernels_baseline(layers::ActivationKind);
const VectorKernels<double>& double_kernels_avx2(layers::ActivationKind);
const VectorKernels<double>& double_kernels_avx512(layers::ActivationKind);
const VectorKernels<BFloat16Element>& bfloat16_kernels_baseline(
    layers::ActivationKind);
const VectorKernels<BFloat16Element>& bfloat16_kernels_avx2(
    layers::ActivationKind);
const VectorKernels<BFloat16Element>& bfloat16_kernels_avx512(
    layers::ActivationKind);
const VectorKernels<Float16Element>& float16_kernels_baseline(
    layers::ActivationKind);
const VectorKernels<Float16Element>& float16_kernels_avx2(
    layers::ActivationKind);
const VectorKernels<Float16Element>& float16_kernels_avx512(
    layers::ActivationKind);

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

InstructionSet best_instruction_set() {
  for (InstructionSet set : {InstructionSet::kAvx512, InstructionSet::kAvx2}) {
    if (processor_has(set)) return set;
  }
  return InstructionSet::kBaseline;
}

// The kernels of one element type, one table per instruction set.
template <typename Element>
struct Tables {
  const VectorKernels<Element>& (*baseline)(layers::ActivationKind);
  const VectorKernels<Element>& (*avx2)(layers::ActivationKind);
  const VectorKernels<Element>& (*avx512)(layers::ActivationKind);

  const VectorKernels<Element>* of(InstructionSet instruction_set,
                                   layers::ActivationKind activation) const {
    if (!processor_has(instruction_set)) return nullptr;
    switch (instruction_set) {
      case InstructionSet::kBaseline:
        return &baseline(activation);
      case InstructionSet::kAvx2:
        return &avx2(activation);
      case InstructionSet::kAvx512:
        return &avx512(activation);
    }
    return nullptr;
  }
};

}  // namespace

#define HEADROOM_SELECT(Element, name)                                   \
  template <>                                                            \
  const VectorKernels<Element>* vector_kernels_of(                       \
      InstructionSet set, layers::ActivationKind activation) {           \
    return Tables<Element>{name##_kernels_baseline, name##_kernels_avx2, \
                           name##_kernels_avx512}                        \
        .of(set, activation);                                            \
  }                                                                      \
  template <>                                                            \
  const VectorKernels<Element>& vector_kernels(                          \
      layers::ActivationKind activation) {                               \
    static const InstructionSet best = best_instruction_set();           \
    return *vector_kernels_of<Element>(best, activation);                \
  }
HEADROOM_SELECT(float, float)
HEADROOM_SELECT(double, double)
HEADROOM_SELECT(BFloat16Element, bfloat16)
HEADROOM_SELECT(Float16Element, float16)
#undef HEADROOM_SELECT

}  // namespace headroom::kernels
