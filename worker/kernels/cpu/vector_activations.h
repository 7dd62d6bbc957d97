// vector_activations: activations and their derivatives on SIMD vectors.
//
//   SiLU       z / (1 + e^-z)
//   leaky      z, or slope * z where z is not positive
//   Hardswish  z * min(max(z + 3, 0), 6) / 6
//   Mish       z * tanh(log(1 + e^z))
//
// value(z, slope) and gradient(z, dy, slope) = dy * activation'(z); only leaky
// reads the slope. A NaN in z stays one in value, one in dy in gradient. As
// vector_math.h: unnamed, and without functions that other files share.
#pragma once

#include "worker/kernels/cpu/vector_math.h"

#define HEADROOM_INLINE static inline __attribute__((always_inline))

namespace headroom::kernels {
namespace {

template <typename T>
struct Silu {
  HEADROOM_INLINE Pack<T> value(Pack<T> z, T) {
    const ScaledExponential<T> e = exponential_of_minus<T>(z);
    HEADROOM_EACH(k)
    z.v[k] = z.v[k] / (e.mantissa.v[k] * e.power.v[k] + T(1));
    return z;
  }
  HEADROOM_INLINE Pack<T> gradient(Pack<T> z, Pack<T> dy, T) {
    const ScaledExponential<T> scaled = exponential_of_minus<T>(z);
    HEADROOM_EACH(k) {
      // silu'(z) = s + z s (1 - s); e * s is 1 - s without cancellation.
      const Vector<T> e = scaled.mantissa.v[k] * scaled.power.v[k];
      const Vector<T> s = T(1) / (e + T(1));
      dy.v[k] = dy.v[k] * s * (T(1) + z.v[k] * (e * s));
    }
    return dy;
  }
};

template <typename T>
struct Leaky {
  HEADROOM_INLINE Pack<T> value(Pack<T> z, T slope) {
    HEADROOM_EACH(k) {
      const Vector<T> low = z.v[k] * slope;
      z.v[k] = z.v[k] > T(0) ? z.v[k] : low;
    }
    return z;
  }
  HEADROOM_INLINE Pack<T> gradient(Pack<T> z, Pack<T> dy, T slope) {
    const Vector<T> one = T(1) - Vector<T>{};
    const Vector<T> low = slope - Vector<T>{};
    HEADROOM_EACH(k) dy.v[k] = dy.v[k] * (z.v[k] > T(0) ? one : low);
    return dy;
  }
};

template <typename T>
struct Hardswish {
  HEADROOM_INLINE Pack<T> value(Pack<T> z, T) {
    const Vector<T> zero = {};
    const Vector<T> six = T(6) - zero;
    HEADROOM_EACH(k) {
      const Vector<T> gate = smaller<T>(six, larger<T>(zero, z.v[k] + T(3)));
      z.v[k] = z.v[k] * (gate * T(1.0 / 6));
    }
    return z;
  }
  HEADROOM_INLINE Pack<T> gradient(Pack<T> z, Pack<T> dy, T) {
    const Vector<T> zero = {};
    const Vector<T> one = T(1) - zero;
    HEADROOM_EACH(k) {
      const Vector<T> between = z.v[k] * T(1.0 / 3) + T(0.5);
      const Vector<T> at_most = z.v[k] > T(3) ? one : between;
      dy.v[k] = dy.v[k] * (z.v[k] < T(-3) ? zero : at_most);
    }
    return dy;
  }
};

// With w = e^z the factor of z is t = w (w + 2) / d, d = w (w + 2) + 2, and its
// derivative 4 w (w + 1) / d^2: no cancellation. From z = 20 on t is 1, and w
// stays there so that d^2 does not overflow.
template <typename T>
struct Mish {
  HEADROOM_INLINE Pack<T> power(const Pack<T>& z) {
    const Vector<T> highest = T(20) - Vector<T>{};
    Pack<T> w;
    HEADROOM_EACH(k) w.v[k] = -smaller<T>(highest, z.v[k]);
    const ScaledExponential<T> e = exponential_of_minus<T>(w);
    HEADROOM_EACH(k) w.v[k] = e.mantissa.v[k] * e.power.v[k];
    return w;
  }
  HEADROOM_INLINE Pack<T> value(Pack<T> z, T) {
    const Pack<T> w = power(z);
    HEADROOM_EACH(k) {
      const Vector<T> product = w.v[k] * (w.v[k] + T(2));
      z.v[k] = z.v[k] * (product / (product + T(2)));
    }
    return z;
  }
  HEADROOM_INLINE Pack<T> gradient(Pack<T> z, Pack<T> dy, T) {
    const Pack<T> w = power(z);
    HEADROOM_EACH(k) {
      const Vector<T> product = w.v[k] * (w.v[k] + T(2));
      const Vector<T> d = product + T(2);
      const Vector<T> rise = T(4) * w.v[k] * (w.v[k] + T(1)) / (d * d);
      dy.v[k] = dy.v[k] * (product / d + z.v[k] * rise);
    }
    return dy;
  }
};

}  // namespace
}  // namespace headroom::kernels

#undef HEADROOM_INLINE
