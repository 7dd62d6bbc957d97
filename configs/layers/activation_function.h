// ActivationFunction: what follows batch norm in a convolution block, as a
// value.
//
// ReLU, LeakyReLU and the identity are one: z where it is positive, slope * z
// where it is not.
//
// Threads: a value; plain C++ that nvcc reads too.
#pragma once

namespace headroom::layers {

enum class ActivationKind { kSilu, kLeaky, kHardswish, kMish };

struct ActivationFunction {
  ActivationKind kind = ActivationKind::kSilu;
  double slope = 0;  // of kLeaky: 0 ReLU, 1 the identity

  bool operator==(const ActivationFunction&) const = default;
};

inline constexpr ActivationFunction kIdentity = {ActivationKind::kLeaky, 1};
inline constexpr ActivationFunction kRelu = {ActivationKind::kLeaky, 0};

}  // namespace headroom::layers
