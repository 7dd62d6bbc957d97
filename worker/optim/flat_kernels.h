// The inner loops of the optimizer over contiguous memory.
//
// They are in a file of their own so that it can be compiled with the
// optimisations for vector code. The arithmetic and its order are as written,
// independent of the compiler.
//
// REQUIRES: arrays of one call do not overlap.
#pragma once

#include <cstdint>

#include "worker/kernels/element_math.h"

namespace headroom::optim {

// Applies sgd_element (worker/kernels/element_math.h) to each element.
template <typename T>
void sgd_range(T* parameters, const T* gradients, T* buffer, int64_t size,
               const kernels::SgdCoefficients<T>& coefficients);

// Applies adam_element to each element.
template <typename T>
void adam_range(T* parameters, const T* gradients, T* first_moment,
                T* second_moment, int64_t size,
                const kernels::AdamCoefficients<T>& coefficients);

// Sum of a[i]^2, or of (a[i] + b[i])^2 if b is not nullptr, in double.
template <typename T>
double sum_of_squares(const T* a, const T* b, int64_t size);

}  // namespace headroom::optim
