// VectorKernels: batch norm and activation over plain arrays, per instruction
// set.
//
// All arrays are rows of `period` elements without gaps. A row is one pixel's
// channels, or several pixels' side by side, so that few channels fill a
// vector too; per-channel arguments are repeated accordingly. `period` must be
// a multiple of `block`.
//
// With z = (y - mean) * scale + bias the block's output is activation(z);
// `slope` is ActivationFunction's.
// Elements of 16 bits are computed with in float; per-channel arguments and
// sums of tiles are floats too.
#pragma once

#include <cstdint>

#include "configs/layers/layer_program.h"

namespace headroom::kernels {

// Formats of 16 bits, whose elements are handed over as their bits.
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

  // dz = dy * activation'(z); sum += dz, sum_centred += dz * (y - mean).
  // dz may be dy.
  void (*backward_activation)(const S* y, const S* dy, S* dz, int64_t rows,
                              int64_t period, const T* mean, const T* scale,
                              const T* bias, T slope, double* sum,
                              double* sum_centred);

  // gradient = scale * gradient - offset - (y - mean) * slope
  void (*backward_norm)(const S* y, S* gradient, int64_t rows, int64_t period,
                        const T* mean, const T* scale, const T* offset,
                        const T* slope);
};

// The best of this processor. For float, double and the formats of 16 bits.
template <typename Element>
const VectorKernels<Element>& vector_kernels(
    layers::ActivationKind activation = layers::ActivationKind::kSilu);

// One table per instruction set and activation, for vector_kernels() and for
// tests; null where
// the processor lacks it.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
template <typename Element>
const VectorKernels<Element>* vector_kernels_of(
    InstructionSet instruction_set,
    layers::ActivationKind activation = layers::ActivationKind::kSilu);

}  // namespace headroom::kernels
