// vector_math: SIMD vectors for the instruction set of the compilation.
//
// Included only by vector_kernels.cpp, which is compiled once per instruction
// set. Everything is in an unnamed namespace and uses no standard function. If
// an inline function were shared with other files, the linker might keep the
// copy that was compiled here, and AVX-512 code would then run on a processor
// without it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace headroom::kernels {
namespace {

template <typename T>
struct VectorOf;

template <>
struct VectorOf<float> {
  typedef float Vector __attribute__((vector_size(HEADROOM_VECTOR_BYTES)));
  typedef float Unaligned __attribute__((vector_size(HEADROOM_VECTOR_BYTES),
                                         aligned(4), may_alias));
  typedef int32_t Integers __attribute__((vector_size(HEADROOM_VECTOR_BYTES)));
};

template <>
struct VectorOf<double> {
  typedef double Vector __attribute__((vector_size(HEADROOM_VECTOR_BYTES)));
  typedef double Unaligned __attribute__((vector_size(HEADROOM_VECTOR_BYTES),
                                          aligned(8), may_alias));
  typedef int64_t Integers __attribute__((vector_size(HEADROOM_VECTOR_BYTES)));
};

template <typename T>
using Vector = typename VectorOf<T>::Vector;

template <typename T>
constexpr int64_t kLanes = HEADROOM_VECTOR_BYTES / sizeof(T);

// Number of adjacent vectors that are processed together. The chain of
// dependent operations of a single vector is too long for a processor to
// overlap with the chain of the next vector.
constexpr int kPackVectors = 4;

template <typename T>
constexpr int64_t kPackElements = kPackVectors* kLanes<T>;

template <typename T>
struct Pack {
  Vector<T> v[kPackVectors];
};

// Loops over the vectors of a pack; unrolled by the compiler.
#define HEADROOM_EACH(k) for (int k = 0; k < kPackVectors; ++k)

template <typename T>
inline __attribute__((always_inline)) Pack<T> load(const T* from) {
  Pack<T> pack;
  HEADROOM_EACH(k)
  pack.v[k] = *reinterpret_cast<const typename VectorOf<T>::Unaligned*>(
      from + k * kLanes<T>);
  return pack;
}

template <typename T>
inline __attribute__((always_inline)) void store(T* to, const Pack<T>& pack) {
  HEADROOM_EACH(k)
  *reinterpret_cast<typename VectorOf<T>::Unaligned*>(to + k * kLanes<T>) =
      pack.v[k];
}

// The max and min instructions below return `b` if either operand is NaN.
// Compilers do not generate them from a comparison and a selection.
#if HEADROOM_VECTOR_BYTES == 64
#define HEADROOM_SIMD(name) _mm512_##name
using Floats = __m512;
using Doubles = __m512d;
#elif HEADROOM_VECTOR_BYTES == 32
#define HEADROOM_SIMD(name) _mm256_##name
using Floats = __m256;
using Doubles = __m256d;
#else
#define HEADROOM_SIMD(name) _mm_##name
using Floats = __m128;
using Doubles = __m128d;
#endif

template <typename T>
inline __attribute__((always_inline)) Vector<T> larger(Vector<T> a,
                                                       Vector<T> b) {
  if constexpr (sizeof(T) == 4)
    return (Vector<T>)HEADROOM_SIMD(max_ps)((Floats)a, (Floats)b);
  else
    return (Vector<T>)HEADROOM_SIMD(max_pd)((Doubles)a, (Doubles)b);
}

template <typename T>
inline __attribute__((always_inline)) Vector<T> smaller(Vector<T> a,
                                                        Vector<T> b) {
  if constexpr (sizeof(T) == 4)
    return (Vector<T>)HEADROOM_SIMD(min_ps)((Floats)a, (Floats)b);
  else
    return (Vector<T>)HEADROOM_SIMD(min_pd)((Doubles)a, (Doubles)b);
}

// exp(-z) = 2^n * exp(r) with n = round(-z / ln 2) and r = -z - n ln 2. Adding
// kRound rounds to an integer and leaves n + the exponent's bias in the low
// bits, ready to be shifted into an exponent.
template <typename T>
struct Exponential;

template <>
struct Exponential<float> {
  static constexpr float kLowest = -87.0f;
  static constexpr float kHighest = 87.0f;
  static constexpr float kRound = 12582912.0f + 127.0f;  // 1.5 * 2^23 + bias
  static constexpr int kMantissaBits = 23;
#ifdef __FMA__
  // With fused multiply-add one step is enough: the error of float's ln 2 is
  // 1.9e-9, and |n| <= 126.
  static constexpr float kLn2High = 0.693147182464599609375f;
  static constexpr float kLn2Low = 0;
#else
  static constexpr float kLn2High = 0.693359375f;
  static constexpr float kLn2Low = -2.12194440e-4f;
#endif
  // Polynomial for exp(r) on |r| <= ln 2 / 2: (exp(r) - 1 - r) / r^2
  // interpolated at Chebyshev points. Relative error of exp: 1.0e-8 before
  // rounding.
  static constexpr float kCoefficients[] = {1.392621347e-3f,
                                            8.363202972e-3f,
                                            4.166655444e-2f,
                                            1.666657685e-1f,
                                            0.5f,
                                            1.0f,
                                            1.0f};
};

template <>
struct Exponential<double> {
  static constexpr double kLowest = -708.0;
  static constexpr double kHighest = 708.0;
  static constexpr double kRound = 6755399441055744.0 + 1023.0;  // 1.5 * 2^52
  static constexpr int kMantissaBits = 52;
  static constexpr double kLn2High = 0.693145751953125;
  static constexpr double kLn2Low = 1.42860682030941723212e-6;
  // Taylor series through r^13; the next term is 4e-18.
  static constexpr double kCoefficients[] = {1.0 / 6227020800,
                                             1.0 / 479001600,
                                             1.0 / 39916800,
                                             1.0 / 3628800,
                                             1.0 / 362880,
                                             1.0 / 40320,
                                             1.0 / 5040,
                                             1.0 / 720,
                                             1.0 / 120,
                                             1.0 / 24,
                                             1.0 / 6,
                                             0.5,
                                             1.0,
                                             1.0};
};

// exp(-z) as mantissa * power, so that adding 1 is one fused operation.
template <typename T>
struct ScaledExponential {
  Pack<T> mantissa;
  Pack<T> power;
};

// NaN stays NaN: larger() and smaller() return it, and it passes through the
// polynomial. A step is rejected because of its non-finite loss or gradient, so
// no kernel may lose a NaN.
template <typename T>
inline __attribute__((always_inline)) ScaledExponential<T> exponential_of_minus(
    Pack<T> z) {
  using Constants = Exponential<T>;
  using Integers = typename VectorOf<T>::Integers;
  constexpr int kTerms =
      sizeof(Constants::kCoefficients) / sizeof(Constants::kCoefficients[0]);
  const Vector<T> lowest = Constants::kLowest - Vector<T>{};
  const Vector<T> highest = Constants::kHighest - Vector<T>{};
  HEADROOM_EACH(k) z.v[k] = larger<T>(lowest, z.v[k]);
  HEADROOM_EACH(k) z.v[k] = smaller<T>(highest, z.v[k]);
  Pack<T> rounded, r;
  HEADROOM_EACH(k)
  rounded.v[k] = z.v[k] * T(-1.4426950408889634) + Constants::kRound;
  HEADROOM_EACH(k) {
    const Vector<T> n = rounded.v[k] - Constants::kRound;
    r.v[k] = n * -Constants::kLn2High - z.v[k];
    if constexpr (Constants::kLn2Low != 0)
      r.v[k] = n * -Constants::kLn2Low + r.v[k];
  }
  ScaledExponential<T> e;
  HEADROOM_EACH(k)
  e.mantissa.v[k] =
      Constants::kCoefficients[0] * r.v[k] + Constants::kCoefficients[1];
#pragma GCC unroll 16
  for (int i = 2; i < kTerms; ++i) HEADROOM_EACH(k)
  e.mantissa.v[k] = e.mantissa.v[k] * r.v[k] + Constants::kCoefficients[i];
  HEADROOM_EACH(k)
  e.power.v[k] =
      (Vector<T>)((Integers)rounded.v[k] << Constants::kMantissaBits);
  return e;
}

}  // namespace
}  // namespace headroom::kernels
