#include "worker/optim/flat_kernels.h"

namespace headroom::optim {
namespace {

// Independent partial sums. With a single sum the compiler may not reorder the
// additions, and could not use vector code. The number of partial sums fixes
// the order of the additions.
constexpr int64_t kLanes = 8;

template <typename T, typename Element>
double sum_of_lanes(int64_t size, const Element& element) {
  double lanes[kLanes] = {};
  const int64_t whole = size - size % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = element(i + lane);
      lanes[lane] += value * value;
    }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (int64_t i = whole; i < size; ++i) {
    const double value = element(i);
    sum += value * value;
  }
  return sum;
}

}  // namespace

template <typename T>
void sgd_range(T* __restrict parameters, const T* __restrict gradients,
               T* __restrict buffer, int64_t size,
               const kernels::SgdCoefficients<T>& coefficients) {
  // The compiler knows that a local copy of the coefficients does not overlap
  // the arrays. Without a branch per element the loops can be vectorised.
  kernels::SgdCoefficients<T> c = coefficients;
  if (c.first_step) {
    for (int64_t i = 0; i < size; ++i)
      kernels::sgd_element(parameters[i], gradients[i], buffer[i], c);
    return;
  }
  c.first_step = false;
  for (int64_t i = 0; i < size; ++i)
    kernels::sgd_element(parameters[i], gradients[i], buffer[i], c);
}

template <typename T>
void adam_range(T* __restrict parameters, const T* __restrict gradients,
                T* __restrict first_moment, T* __restrict second_moment,
                int64_t size,
                const kernels::AdamCoefficients<T>& coefficients) {
  const auto c = coefficients;
  for (int64_t i = 0; i < size; ++i) {
    kernels::adam_element(parameters[i], gradients[i], first_moment[i],
                          second_moment[i], c);
  }
}

template <typename T>
double sum_of_squares(const T* __restrict a, const T* __restrict b,
                      int64_t size) {
  if (b == nullptr)
    return sum_of_lanes<T>(
        size, [a](int64_t i) { return static_cast<double>(a[i]); });
  // The sum is rounded to T first, like the gradient that the step uses.
  return sum_of_lanes<T>(
      size, [a, b](int64_t i) { return static_cast<double>(a[i] + b[i]); });
}

template void sgd_range<float>(float*, const float*, float*, int64_t,
                               const kernels::SgdCoefficients<float>&);
template void sgd_range<double>(double*, const double*, double*, int64_t,
                                const kernels::SgdCoefficients<double>&);
template void adam_range<float>(float*, const float*, float*, float*, int64_t,
                                const kernels::AdamCoefficients<float>&);
template void adam_range<double>(double*, const double*, double*, double*,
                                 int64_t,
                                 const kernels::AdamCoefficients<double>&);
template double sum_of_squares<float>(const float*, const float*, int64_t);
template double sum_of_squares<double>(const double*, const double*, int64_t);

}  // namespace headroom::optim
