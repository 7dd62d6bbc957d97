// The inner loops of the optimizer over contiguous memory.
//
// They stand apart from the tensors because they are compiled on their own,
// with the optimisation that lets a compiler turn them into vector code; the
// arithmetic and its order are as written, whatever the compiler does.
//
// REQUIRES: arrays of one call do not overlap.
#pragma once

#include <cstdint>

#include "worker/kernels/element_math.h"

namespace headroom::optim {

// sgd_element (worker/kernels/element_math.h) over a range.
template <typename T>
void sgd_range(T* parameters, const T* gradients, T* buffer, int64_t size,
               const kernels::SgdCoefficients<T>& coefficients);

// adam_element over a range.
template <typename T>
void adam_range(T* parameters, const T* gradients, T* first_moment,
                T* second_moment, int64_t size,
                const kernels::AdamCoefficients<T>& coefficients);

// Sum of a[i]^2, or of (a[i] + b[i])^2 when b is not null, in double.
template <typename T>
double sum_of_squares(const T* a, const T* b, int64_t size);

}  // namespace headroom::optim
