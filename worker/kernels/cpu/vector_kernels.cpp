// Compiled once per instruction set: HEADROOM_INSTRUCTION_SET is its name,
// HEADROOM_VECTOR_BYTES the width of its registers.
#include "worker/kernels/cpu/vector_kernels.h"

#include "worker/kernels/cpu/vector_math.h"

namespace headroom::kernels {
namespace {

// --- Activations and their derivatives
//
//   SiLU       z / (1 + e^-z)
//   leaky      z, or slope * z where z is not positive
//   Hardswish  z * min(max(z + 3, 0), 6) / 6
//   Mish       z * tanh(log(1 + e^z))
//
// value(z, slope) and gradient(z, dy, slope) = dy * activation'(z); only leaky
// uses the slope. A NaN in z gives a NaN value; a NaN in dy gives a NaN
// gradient.

#define HEADROOM_INLINE static inline __attribute__((always_inline))

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

// Mish is z * t with t = w (w + 2) / d, where w = e^z and d = w (w + 2) + 2.
// The derivative of t is 4 w (w + 1) / d^2: no cancellation. From z = 20 on t
// is 1, and w is clamped there so that d^2 does not overflow.
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

#undef HEADROOM_INLINE

// --- Conversion of 16-bit elements to and from vectors of float
//
// Rounds to nearest, ties to even, as LibTorch and GPUs do; NaN stays NaN, and
// too large values become infinite. Uses only integer operations that all
// instruction sets have.

using FloatVector = Vector<float>;
using IntVector = VectorOf<float>::Integers;
typedef uint16_t HalfWords
    __attribute__((vector_size(HEADROOM_VECTOR_BYTES / 2)));
typedef uint16_t UnalignedHalfWords __attribute__((
    vector_size(HEADROOM_VECTOR_BYTES / 2), aligned(2), may_alias));

inline __attribute__((always_inline)) IntVector select(IntVector mask,
                                                       IntVector yes,
                                                       IntVector no) {
  return (mask & yes) | (~mask & no);
}

// Prepares values for rounding away their lowest `kBits` bits.
template <int kBits>
inline __attribute__((always_inline)) IntVector rounded_up(IntVector bits) {
  return bits + ((1 << (kBits - 1)) - 1) + ((bits >> kBits) & 1);
}

template <typename Element>
struct Format;

// bfloat16 is the upper half of a float.
template <>
struct Format<BFloat16Element> {
  static inline __attribute__((always_inline)) FloatVector widen(
      IntVector words) {
    return (FloatVector)(words << 16);
  }
  static inline __attribute__((always_inline)) IntVector narrow(
      FloatVector value) {
    const IntVector bits = (IntVector)value;
    const IntVector is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return select(is_nan, (bits >> 16) | 0x40, rounded_up<16>(bits) >> 16);
  }
};

// IEEE 754 half precision: 5 bits of exponent, 10 of mantissa.
template <>
struct Format<Float16Element> {
  static inline __attribute__((always_inline)) FloatVector widen(
      IntVector words) {
    const IntVector magnitude = (words & 0x7fff) << 13;
    // The exponents' biases differ by 112; multiplying also handles subnormals.
    const FloatVector scaled = (FloatVector)magnitude * 0x1p112f;
    const IntVector special = magnitude >= (31 << 23);
    return (FloatVector)(select(special, magnitude | 0x7f800000,
                                (IntVector)scaled) |
                         ((words & 0x8000) << 16));
  }
  static inline __attribute__((always_inline)) IntVector narrow(
      FloatVector value) {
    const IntVector bits = (IntVector)value;
    const IntVector magnitude = bits & 0x7fffffff;
    // Adding 0.5 rounds to multiples of 2^-24, the smallest subnormal half:
    // near 0.5 this is a float's last bit.
    const FloatVector half = 0.5f - FloatVector{};
    const IntVector subnormal =
        (IntVector)((FloatVector)magnitude + half) - (IntVector)half;
    const IntVector normal = (rounded_up<13>(magnitude) - (112 << 23)) >> 13;
    IntVector result = select(magnitude < (113 << 23), subnormal, normal);
    result = select(magnitude >= (143 << 23), (result & 0) + 0x7c00, result);
    result = select(magnitude > 0x7f800000, (result & 0) + 0x7e00, result);
    return result | ((bits >> 16) & 0x8000);
  }
};

template <typename Element>
inline __attribute__((always_inline)) Pack<ValueOf<Element>> load_elements(
    const StoredOf<Element>* from) {
  if constexpr (sizeof(StoredOf<Element>) == sizeof(ValueOf<Element>)) {
    return load(from);
  } else {
    Pack<float> pack;
    HEADROOM_EACH(k) {
      const HalfWords words = *reinterpret_cast<const UnalignedHalfWords*>(
          from + k * kLanes<float>);
      pack.v[k] =
          Format<Element>::widen(__builtin_convertvector(words, IntVector));
    }
    return pack;
  }
}

template <typename Element>
inline __attribute__((always_inline)) void store_elements(
    StoredOf<Element>* to, const Pack<ValueOf<Element>>& pack) {
  if constexpr (sizeof(StoredOf<Element>) == sizeof(ValueOf<Element>)) {
    store(to, pack);
  } else {
    HEADROOM_EACH(k)
    *reinterpret_cast<UnalignedHalfWords*>(to + k * kLanes<float>) =
        __builtin_convertvector(Format<Element>::narrow(pack.v[k]), HalfWords);
  }
}

// --- Loops over rows

// Number of rows that are added in T before their sum is added in double. So
// the rounding error is that of a few additions, and a tile stays in the L1
// cache.
constexpr int64_t kTileRows = 32;

template <typename T>
inline __attribute__((always_inline)) void add_to(double* to,
                                                  const Pack<T>& pack) {
  T values[kPackElements<T>];
  store(values, pack);
  for (int64_t i = 0; i < kPackElements<T>; ++i) to[i] += values[i];
}

inline int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename E, typename S = StoredOf<E>, typename T = ValueOf<E>>
void sums(const S* y, int64_t rows, int64_t period, const T* shift, double* sum,
          double* sum_squares) {
  for (int64_t begin = 0; begin < rows; begin += kTileRows) {
    const int64_t end = smaller_of(begin + kTileRows, rows);
    for (int64_t column = 0; column < period; column += kPackElements<T>) {
      const Pack<T> centre = load(shift + column);
      Pack<T> total = {}, squares = {};
      for (int64_t i = begin; i < end; ++i) {
        const Pack<T> value = load_elements<E>(y + i * period + column);
        HEADROOM_EACH(k) {
          const Vector<T> d = value.v[k] - centre.v[k];
          total.v[k] += d;
          squares.v[k] += d * d;
        }
      }
      add_to(sum + column, total);
      add_to(sum_squares + column, squares);
    }
  }
}

template <typename E, template <typename> typename Function,
          typename S = StoredOf<E>, typename T = ValueOf<E>>
void forward(const S* y, S* out, int64_t rows, int64_t period, const T* mean,
             const T* scale, const T* bias, T slope) {
  for (int64_t i = 0; i < rows; ++i, y += period, out += period) {
    for (int64_t c = 0; c < period; c += kPackElements<T>) {
      const Pack<T> value = load_elements<E>(y + c), m = load(mean + c),
                    a = load(scale + c), b = load(bias + c);
      Pack<T> z;
      HEADROOM_EACH(k) z.v[k] = (value.v[k] - m.v[k]) * a.v[k] + b.v[k];
      store_elements<E>(out + c, Function<T>::value(z, slope));
    }
  }
}

template <typename E, template <typename> typename Function,
          typename S = StoredOf<E>, typename T = ValueOf<E>>
void backward_activation(const S* y, const S* dy, S* dz, int64_t rows,
                         int64_t period, const T* mean, const T* scale,
                         const T* bias, T slope, double* sum,
                         double* sum_centred) {
  for (int64_t begin = 0; begin < rows; begin += kTileRows) {
    const int64_t end = smaller_of(begin + kTileRows, rows);
    for (int64_t column = 0; column < period; column += kPackElements<T>) {
      Pack<T> total = {}, total_centred = {};
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i * period + column;
        Pack<T> centred = load_elements<E>(y + at), z,
                gradient = load_elements<E>(dy + at);
        const Pack<T> m = load(mean + column), a = load(scale + column),
                      b = load(bias + column);
        HEADROOM_EACH(k) centred.v[k] -= m.v[k];
        HEADROOM_EACH(k) z.v[k] = centred.v[k] * a.v[k] + b.v[k];
        gradient = Function<T>::gradient(z, gradient, slope);
        HEADROOM_EACH(k) {
          total.v[k] += gradient.v[k];
          total_centred.v[k] += gradient.v[k] * centred.v[k];
        }
        store_elements<E>(dz + at, gradient);
      }
      add_to(sum + column, total);
      add_to(sum_centred + column, total_centred);
    }
  }
}

template <typename E, typename S = StoredOf<E>, typename T = ValueOf<E>>
void backward_norm(const S* y, S* gradient, int64_t rows, int64_t period,
                   const T* mean, const T* scale, const T* offset,
                   const T* slope) {
  for (int64_t i = 0; i < rows; ++i, y += period, gradient += period) {
    for (int64_t c = 0; c < period; c += kPackElements<T>) {
      const Pack<T> value = load_elements<E>(y + c), m = load(mean + c),
                    a = load(scale + c), b = load(offset + c),
                    d = load(slope + c);
      Pack<T> g = load_elements<E>(gradient + c);
      HEADROOM_EACH(k)
      g.v[k] = g.v[k] * a.v[k] - b.v[k] - (value.v[k] - m.v[k]) * d.v[k];
      store_elements<E>(gradient + c, g);
    }
  }
}

template <typename E, template <typename> typename Function>
constexpr VectorKernels<E> kKernels = {
    kPackElements<ValueOf<E>>, sums<E>, forward<E, Function>,
    backward_activation<E, Function>, backward_norm<E>};

template <typename E>
const VectorKernels<E>& kernels_for(layers::ActivationKind activation) {
  switch (activation) {
    case layers::ActivationKind::kSilu:
      break;
    case layers::ActivationKind::kLeaky:
      return kKernels<E, Leaky>;
    case layers::ActivationKind::kHardswish:
      return kKernels<E, Hardswish>;
    case layers::ActivationKind::kMish:
      return kKernels<E, Mish>;
  }
  return kKernels<E, Silu>;
}

}  // namespace

#define HEADROOM_JOIN_TOKENS(a, b) a##_##b
#define HEADROOM_JOIN(a, b) HEADROOM_JOIN_TOKENS(a, b)

const VectorKernels<float>& HEADROOM_JOIN(float_kernels,
                                          HEADROOM_INSTRUCTION_SET)(
    layers::ActivationKind activation) {
  return kernels_for<float>(activation);
}

const VectorKernels<double>& HEADROOM_JOIN(double_kernels,
                                           HEADROOM_INSTRUCTION_SET)(
    layers::ActivationKind activation) {
  return kernels_for<double>(activation);
}

const VectorKernels<BFloat16Element>& HEADROOM_JOIN(bfloat16_kernels,
                                                    HEADROOM_INSTRUCTION_SET)(
    layers::ActivationKind activation) {
  return kernels_for<BFloat16Element>(activation);
}

const VectorKernels<Float16Element>& HEADROOM_JOIN(float16_kernels,
                                                   HEADROOM_INSTRUCTION_SET)(
    layers::ActivationKind activation) {
  return kernels_for<Float16Element>(activation);
}

}  // namespace headroom::kernels
