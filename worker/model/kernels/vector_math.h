// vector_math: SIMD vectors of the instruction set a file is compiled for.
//
// Included only by vector_kernels.cpp, which is compiled once per instruction
// set. Everything is in an unnamed namespace and uses no standard function: an
// inline function shared with other files could be the copy that the linker
// keeps, and would then run AVX-512 code on a processor without it.
#pragma once

#include <cstdint>

namespace headroom {
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

template <typename T>
inline __attribute__((always_inline)) Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename VectorOf<T>::Unaligned*>(from);
}

template <typename T>
inline __attribute__((always_inline)) void store(T* to, Vector<T> value) {
  *reinterpret_cast<typename VectorOf<T>::Unaligned*>(to) = value;
}

// What differs between the two exponentials. exp(x) = 2^n * exp(r) with
// n = round(x / ln 2) and r = x - n ln 2 in two parts; adding kRound rounds and
// leaves n in the low bits.
template <typename T>
struct Exponential;

template <>
struct Exponential<float> {
  static constexpr float kLowest = -87.0f;
  static constexpr float kHighest = 88.0f;
  static constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  static constexpr float kLn2High = 0.693359375f;
  static constexpr float kLn2Low = -2.12194440e-4f;
  static constexpr int32_t kBias = 127;
  static constexpr int kMantissaBits = 23;
  // (exp(r) - 1 - r) / r^2 on |r| <= ln 2 / 2, interpolated at Chebyshev's
  // points: relative error of exp 1.0e-8 before rounding.
  static constexpr float kCoefficients[] = {
      1.392621347e-3f, 8.363202972e-3f, 4.166655444e-2f, 1.666657685e-1f, 0.5f};
};

template <>
struct Exponential<double> {
  static constexpr double kLowest = -708.0;
  static constexpr double kHighest = 709.0;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kLn2High = 0.693145751953125;
  static constexpr double kLn2Low = 1.42860682030941723212e-6;
  static constexpr int64_t kBias = 1023;
  static constexpr int kMantissaBits = 52;
  // Taylor through r^13: the next term is 4e-18.
  static constexpr double kCoefficients[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
      1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
      1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5};
};

// A NaN stays one: both comparisons are false for it, and it goes through the
// polynomial. A training step is refused by its non-finite loss or gradient,
// so no kernel may lose one.
template <typename T>
inline __attribute__((always_inline)) Vector<T> exponential(Vector<T> x) {
  using Constants = Exponential<T>;
  using Integers = typename VectorOf<T>::Integers;
  const Vector<T> lowest = Constants::kLowest - Vector<T>{};
  const Vector<T> highest = Constants::kHighest - Vector<T>{};
  x = x < lowest ? lowest : x;
  x = x > highest ? highest : x;
  const Vector<T> rounded = x * T(1.4426950408889634) + Constants::kRound;
  const Vector<T> n = rounded - Constants::kRound;
  const Vector<T> r = x - n * Constants::kLn2High - n * Constants::kLn2Low;
  Vector<T> p = Constants::kCoefficients[0] - Vector<T>{};
  constexpr int kTerms =
      sizeof(Constants::kCoefficients) / sizeof(Constants::kCoefficients[0]);
#pragma GCC unroll 16
  for (int i = 1; i < kTerms; ++i) p = p * r + Constants::kCoefficients[i];
  p = p * (r * r) + r + T(1);
  // The low bits of `rounded` hold n; the shift drops the rest.
  const Integers scale =
      (reinterpret_cast<const Integers&>(rounded) + Constants::kBias)
      << Constants::kMantissaBits;
  return p * reinterpret_cast<const Vector<T>&>(scale);
}

}  // namespace
}  // namespace headroom
