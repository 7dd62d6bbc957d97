// vector_formats: elements of 16 bits to and from vectors of float.
//
// Included only by vector_kernels.cpp, like vector_math.h and for its reason in
// an unnamed namespace. Rounding is to the nearest, ties to even, as in
// LibTorch and on GPUs; a NaN stays one, what is too large becomes infinite.
// Written in integer operations that all instruction sets have.
#pragma once

#include "worker/kernels/cpu/vector_kernels.h"
#include "worker/kernels/cpu/vector_math.h"

namespace headroom::kernels {
namespace {

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

// Values to round in their lowest `kBits` bits.
template <int kBits>
inline __attribute__((always_inline)) IntVector rounded_up(IntVector bits) {
  return bits + ((1 << (kBits - 1)) - 1) + ((bits >> kBits) & 1);
}

template <typename Element>
struct Format;

// A float's upper half.
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

// IEEE 754's: 5 bits of exponent, 10 of mantissa.
template <>
struct Format<Float16Element> {
  static inline __attribute__((always_inline)) FloatVector widen(
      IntVector words) {
    const IntVector magnitude = (words & 0x7fff) << 13;
    // The exponents' biases differ by 112; a product makes subnormals right.
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
    // Beside 0.5 the last bit of a float is that of a subnormal.
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

}  // namespace
}  // namespace headroom::kernels
