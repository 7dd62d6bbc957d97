// VectorKernels: batch norm and SiLU over plain arrays, per instruction set.
//
// All arrays are rows of `period` elements without gaps. A row is one pixel's
// channels, or several pixels' side by side, so that few channels fill a
// vector too; per-channel arguments are repeated accordingly. `period` must be
// a multiple of `block`.
//
// With z = (y - mean) * scale + bias the block's output is z * sigmoid(z).
//
// Threads: pure functions; callers split the rows.
#pragma once

#include <cstdint>

namespace headroom {

template <typename T>
struct VectorKernels {
  int64_t block;

  // sum += y - shift, sum_squares += (y - shift)^2, column by column.
  void (*sums)(const T* y, int64_t rows, int64_t period, const T* shift,
               double* sum, double* sum_squares);

  // out = silu(z)
  void (*forward)(const T* y, T* out, int64_t rows, int64_t period,
                  const T* mean, const T* scale, const T* bias);

  // dz = dy * silu'(z); sum += dz, sum_centred += dz * (y - mean).
  // dz may be dy.
  void (*backward_activation)(const T* y, const T* dy, T* dz, int64_t rows,
                              int64_t period, const T* mean, const T* scale,
                              const T* bias, double* sum, double* sum_centred);

  // gradient = scale * gradient - offset - (y - mean) * slope
  void (*backward_norm)(const T* y, T* gradient, int64_t rows, int64_t period,
                        const T* mean, const T* scale, const T* offset,
                        const T* slope);
};

// The best of this processor. T is float or double.
template <typename T>
const VectorKernels<T>& vector_kernels();

// One table per instruction set, for vector_kernels() and for tests; null where
// the processor lacks it.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
template <typename T>
const VectorKernels<T>* vector_kernels_of(InstructionSet instruction_set);

}  // namespace headroom
