// Dual<N>: a number with its derivatives along N inputs.
//
// A formula written once for T = double and T = Dual<N> gives its value and its
// exact gradient, so that the closed-form backward of the box loss cannot
// disagree with its forward. Ties follow PyTorch: min and max of two equal
// numbers share the gradient half and half, clamping at zero passes it on at
// zero.
//
// nvcc compiles it for the device too.
// Threads: a value.
#pragma once

#include <cmath>
#include <cstddef>

#include "worker/kernels/element_math.h"

namespace headroom::kernels {

template <size_t N>
struct Dual {
  double value = 0;
  double d[N] = {};

  Dual() = default;
  HEADROOM_HD Dual(double constant)  // NOLINT: mixes with numbers
      : value(constant) {}
  HEADROOM_HD static Dual input(double value, size_t index) {
    Dual x(value);
    x.d[index] = 1;
    return x;
  }

  // f(a, b) with partial derivatives fa and fb.
  HEADROOM_HD static Dual combine(double f, double fa, const Dual& a, double fb,
                                  const Dual& b) {
    Dual result(f);
    for (size_t i = 0; i < N; ++i) result.d[i] = fa * a.d[i] + fb * b.d[i];
    return result;
  }
  HEADROOM_HD Dual scaled(double f, double fa) const {
    Dual result(f);
    for (size_t i = 0; i < N; ++i) result.d[i] = fa * d[i];
    return result;
  }

  HEADROOM_HD friend Dual operator+(const Dual& a, const Dual& b) {
    return combine(a.value + b.value, 1, a, 1, b);
  }
  HEADROOM_HD friend Dual operator-(const Dual& a, const Dual& b) {
    return combine(a.value - b.value, 1, a, -1, b);
  }
  HEADROOM_HD friend Dual operator*(const Dual& a, const Dual& b) {
    return combine(a.value * b.value, b.value, a, a.value, b);
  }
  HEADROOM_HD friend Dual operator/(const Dual& a, const Dual& b) {
    const double f = a.value / b.value;
    return combine(f, 1 / b.value, a, -f / b.value, b);
  }
};

// Overloads for plain numbers, so that a template can name either.
template <typename T>
HEADROOM_HD T minimum(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
HEADROOM_HD T maximum(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
HEADROOM_HD T clamp_at_zero(T x) {
  return x > 0 ? x : T(0);
}
template <typename T>
HEADROOM_HD T arctangent(T x) {
  return std::atan(x);
}
template <typename T>
HEADROOM_HD T without_gradient(T x) {
  return x;
}

template <size_t N>
HEADROOM_HD Dual<N> minimum(const Dual<N>& a, const Dual<N>& b) {
  if (a.value == b.value) return Dual<N>::combine(a.value, .5, a, .5, b);
  return a.value < b.value ? a : b;
}
template <size_t N>
HEADROOM_HD Dual<N> maximum(const Dual<N>& a, const Dual<N>& b) {
  if (a.value == b.value) return Dual<N>::combine(a.value, .5, a, .5, b);
  return a.value > b.value ? a : b;
}
template <size_t N>
HEADROOM_HD Dual<N> clamp_at_zero(const Dual<N>& x) {
  return x.value >= 0 ? x : Dual<N>(0);
}
template <size_t N>
HEADROOM_HD Dual<N> arctangent(const Dual<N>& x) {
  return x.scaled(std::atan(x.value), 1 / (1 + x.value * x.value));
}
template <size_t N>
HEADROOM_HD Dual<N> without_gradient(const Dual<N>& x) {
  return Dual<N>(x.value);
}

}  // namespace headroom::kernels
