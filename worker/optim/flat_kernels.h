// The inner loops of the optimizer over contiguous memory.
//
// They stand apart from the tensors because they are compiled on their own,
// with the optimisation that lets a compiler turn them into vector code; the
// arithmetic and its order are as written, whatever the compiler does.
//
// REQUIRES: arrays of one call do not overlap.
// Threads: pure.
#pragma once

#include <cstdint>

namespace headroom {

template <typename T>
struct SgdCoefficients {
  T lr, weight_decay, momentum, clip;
  bool first_step;
};

// g = clip*gradient + weight_decay*p; buffer = g on the first step, else
// momentum*buffer + g; p -= lr*(g + momentum*buffer).
template <typename T>
void sgd_range(T* parameters, const T* gradients, T* buffer, int64_t size,
               const SgdCoefficients<T>& coefficients);

// Sum of a[i]^2, or of (a[i] + b[i])^2 when b is not null, in double.
template <typename T>
double sum_of_squares(const T* a, const T* b, int64_t size);

}  // namespace headroom
