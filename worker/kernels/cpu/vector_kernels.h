// VectorKernels: batch norm and activation on arrays, per instruction set.
//
// All arrays are rows of `period` elements without gaps. A row has the channels
// of one pixel, or of several adjacent pixels, so that few channels also fill a
// vector; per-channel arguments are repeated accordingly. `period` must be a
// multiple of `block`.
//
// With z = (y - mean) * scale + bias, the output is activation(z); `slope` is
// ActivationFunction::slope. 16-bit elements are computed in float; per-channel
// arguments and the sums of tiles are then floats too.
#pragma once

#include <cstdint>

#include "configs/layers/activation.h"

namespace headroom::kernels {

// 16-bit formats; their elements are passed as bits.
struct BFloat16Element;
struct Float16Element;

template <typename Element>
struct ElementTypes {
  using Stored = Element;
  using Value = Element;
};
template <>
struct ElementTypes<BFloat16Element> {
  using Stored = uint16_t;
  using Value = float;
};
template <>
struct ElementTypes<Float16Element> {
  using Stored = uint16_t;
  using Value = float;
};
template <typename Element>
using StoredOf = typename ElementTypes<Element>::Stored;
template <typename Element>
using ValueOf = typename ElementTypes<Element>::Value;

template <typename Element>
struct VectorKernels {
  using S = StoredOf<Element>;
  using T = ValueOf<Element>;

  int64_t block;

  // sum += y - shift, sum_squares += (y - shift)^2, column by column.
  void (*sums)(const S* y, int64_t rows, int64_t period, const T* shift,
               double* sum, double* sum_squares);

  // out = activation(z)
  void (*forward)(const S* y, S* out, int64_t rows, int64_t period,
                  const T* mean, const T* scale, const T* bias, T slope);

  // dz = dy * activation'(z); sum += dz; sum_centred += dz * (y - mean). dz may
  // be dy.
  void (*backward_activation)(const S* y, const S* dy, S* dz, int64_t rows,
                              int64_t period, const T* mean, const T* scale,
                              const T* bias, T slope, double* sum,
                              double* sum_centred);

  // gradient = scale * gradient - offset - (y - mean) * slope
  void (*backward_norm)(const S* y, S* gradient, int64_t rows, int64_t period,
                        const T* mean, const T* scale, const T* offset,
                        const T* slope);
};

// The best kernels for this processor. Element: float, double, 16-bit formats.
template <typename Element>
const VectorKernels<Element>& vector_kernels(
    layers::ActivationKind activation = layers::ActivationKind::kSilu);

// The kernels for a given instruction set, for vector_kernels() and for tests.
// Returns nullptr if the processor lacks it.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
template <typename Element>
const VectorKernels<Element>* vector_kernels_of(
    InstructionSet instruction_set,
    layers::ActivationKind activation = layers::ActivationKind::kSilu);

}  // namespace headroom::kernels
