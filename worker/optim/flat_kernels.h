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

template <typename T>
struct AdamCoefficients {
  T step_size = 0, root_of_correction = 1, one_minus_beta1 = 0, beta2 = 0,
    one_minus_beta2 = 0, epsilon = 0, clip = 1;
  T weight_decay = 0;  // added to the gradient
  T shrink = 1;        // what the parameter is multiplied by first
};

// g = clip*gradient + weight_decay*p; p *= shrink; m += one_minus_beta1*(g -
// m); v = beta2*v + one_minus_beta2*g^2; p -= step_size * m /
// (sqrt(v)/root_of_correction + epsilon).
template <typename T>
void adam_range(T* parameters, const T* gradients, T* first_moment,
                T* second_moment, int64_t size,
                const AdamCoefficients<T>& coefficients);

// Sum of a[i]^2, or of (a[i] + b[i])^2 when b is not null, in double.
template <typename T>
double sum_of_squares(const T* a, const T* b, int64_t size);

}  // namespace headroom
