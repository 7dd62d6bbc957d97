// element_math: the arithmetic of batch norm with activation and of the
// optimizers, for one element.
//
// The CPU's loops and the CUDA kernels (parallel/cuda/kernels) use the same
// code, so both give the same results; nvcc also compiles it for the device.
// This header may include only headers that nvcc can compile.
#pragma once

#include <cmath>
#include <type_traits>

#include "configs/layers/activation.h"

#ifdef __CUDACC__
#define HEADROOM_HD __host__ __device__ inline
#else
#define HEADROOM_HD inline
#endif

namespace headroom::kernels {

// --- optimizers ----------------------------------------------------------

template <typename T>
struct SgdCoefficients {
  T lr, weight_decay, momentum, clip;
  bool first_step;
};

// g = clip*gradient + weight_decay*p; buffer = g on the first step, else
// momentum*buffer + g; p -= lr*(g + momentum*buffer): Nesterov's momentum as
// PyTorch writes it.
template <typename T>
HEADROOM_HD void sgd_element(T& parameter, T gradient, T& buffer,
                             const SgdCoefficients<T>& c) {
  const T g = c.clip * gradient + c.weight_decay * parameter;
  const T updated = c.first_step ? g : c.momentum * buffer + g;
  buffer = updated;
  parameter -= c.lr * (g + c.momentum * updated);
}

template <typename T>
struct AdamCoefficients {
  T step_size = 0, root_of_correction = 1, one_minus_beta1 = 0, beta2 = 0,
    one_minus_beta2 = 0, epsilon = 0, clip = 1;
  T weight_decay = 0;  // Adam's decay, added to the gradient
  T shrink = 1;        // AdamW's decay: factor of the parameter
};

// g = clip*gradient + weight_decay*p; p *= shrink; m += one_minus_beta1*(g -
// m); v = beta2*v + one_minus_beta2*g^2; p -= step_size * m /
// (sqrt(v)/root_of_correction + epsilon).
template <typename T>
HEADROOM_HD void adam_element(T& parameter, T gradient, T& first_moment,
                              T& second_moment, const AdamCoefficients<T>& c) {
  const T g = c.clip * gradient + c.weight_decay * parameter;
  const T m = first_moment + c.one_minus_beta1 * (g - first_moment);
  const T v = c.beta2 * second_moment + c.one_minus_beta2 * (g * g);
  first_moment = m;
  second_moment = v;
  parameter =
      c.shrink * parameter -
      c.step_size * (m / (std::sqrt(v) / c.root_of_correction + c.epsilon));
}

// Moves the average towards the value by the fraction `weight`. Like LibTorch's
// lerp it is exact for weights 0 and 1.
template <typename T>
HEADROOM_HD void average_element(T& average, T value, T weight) {
  average = weight < T(0.5) ? average + weight * (value - average)
                            : value - (value - average) * (T(1) - weight);
}

// --- batch norm and activation ---------------------------------------------

// z = (y - mean) * scale + bias
template <typename A>
struct NormCoefficients {
  A mean, scale, bias;
};

// Coefficients of one channel, from statistics in double. The rounding error of
// the mean in A is added to the bias, so that channels whose mean is large
// against their deviation keep their precision.
template <typename A>
HEADROOM_HD NormCoefficients<A> norm_coefficients(double mean,
                                                  double inverse_deviation,
                                                  double weight, double bias) {
  const double scale = inverse_deviation * weight;
  const A rounded = static_cast<A>(mean);
  const double lost = static_cast<double>(rounded) - mean;
  return {rounded, static_cast<A>(scale), static_cast<A>(bias + lost * scale)};
}

// e^x and 1/x. On a device, float uses approximate instructions, accurate to
// two units in the last place; subnormal results become 0.
template <typename A>
HEADROOM_HD A exponential(A x) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<A, float>) {
    constexpr float kLog2OfE = 1.4426950408889634f;
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * kLog2OfE));
    return power;
  }
#endif
  return std::exp(x);
}

template <typename A>
HEADROOM_HD A reciprocal(A x) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<A, float>) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }
#endif
  return A(1) / x;
}

template <typename A>
HEADROOM_HD A sigmoid(A z) {
  return reciprocal(A(1) + exponential(-z));
}

// Mish is z * t with t = tanh(log(1 + e^z)); from z = 20 on t is 1.
template <typename A>
struct MishParts {
  A power;            // e^z
  A inverse_divisor;  // t = 1 - 2 * inverse_divisor
};
template <typename A>
HEADROOM_HD MishParts<A> mish_parts(A z) {
  const A power = exponential(z > A(20) ? A(20) : z);
  return {power, reciprocal(power * (power + A(2)) + A(2))};
}

// An activation whose kind is known at compile time, so that no branch is
// needed per element. The functions below accept it or
// layers::ActivationFunction.
template <layers::ActivationKind kKind>
struct KnownActivation {
  static constexpr layers::ActivationKind kind = kKind;
  double slope = 0;
};

// Returns use(KnownActivation<kind>) for the function's kind.
template <typename Use>
auto with_known_activation(const layers::ActivationFunction& function,
                           const Use& use) {
  using Kind = layers::ActivationKind;
  switch (function.kind) {
    case Kind::kSilu:
      break;
    case Kind::kLeaky:
      return use(KnownActivation<Kind::kLeaky>{function.slope});
    case Kind::kHardswish:
      return use(KnownActivation<Kind::kHardswish>{function.slope});
    case Kind::kMish:
      return use(KnownActivation<Kind::kMish>{function.slope});
  }
  return use(KnownActivation<Kind::kSilu>{function.slope});
}

template <typename A, typename Activation>
HEADROOM_HD A activated(A z, const Activation& function) {
  switch (function.kind) {
    case layers::ActivationKind::kSilu:
      break;
    case layers::ActivationKind::kLeaky:
      return z > A(0) ? z : z * static_cast<A>(function.slope);
    case layers::ActivationKind::kHardswish: {
      const A gate = z + A(3);
      return z * ((gate < A(0)   ? A(0)
                   : gate > A(6) ? A(6)
                                 : gate) *
                  A(1.0 / 6));
    }
    case layers::ActivationKind::kMish: {
      const MishParts<A> m = mish_parts(z);
      return z * ((m.power * (m.power + A(2))) * m.inverse_divisor);
    }
  }
  return z * sigmoid(z);
}

template <typename A, typename Activation>
HEADROOM_HD A activation_derivative(A z, const Activation& function) {
  switch (function.kind) {
    case layers::ActivationKind::kSilu:
      break;
    case layers::ActivationKind::kLeaky:
      return z > A(0) ? A(1) : static_cast<A>(function.slope);
    case layers::ActivationKind::kHardswish:
      return z < A(-3) ? A(0) : z > A(3) ? A(1) : z * A(1.0 / 3) + A(0.5);
    case layers::ActivationKind::kMish: {
      const MishParts<A> m = mish_parts(z);
      const A t = (m.power * (m.power + A(2))) * m.inverse_divisor;
      return t + z * (A(4) * m.power * (m.power + A(1)) * m.inverse_divisor *
                      m.inverse_divisor);
    }
  }
  const A s = sigmoid(z);
  return s * (A(1) + z * (A(1) - s));
}

// activation(z)
template <typename A, typename Activation>
HEADROOM_HD A norm_activation(A y, const NormCoefficients<A>& c,
                              const Activation& function) {
  return activated((y - c.mean) * c.scale + c.bias, function);
}

// dz = dout * activation'(z)
template <typename A, typename Activation>
HEADROOM_HD A norm_activation_gradient(A y, A dout,
                                       const NormCoefficients<A>& c,
                                       const Activation& function) {
  return dout *
         activation_derivative((y - c.mean) * c.scale + c.bias, function);
}

// The gradient of y is scale * dz minus (offset + (y - mean) * slope).
template <typename A>
struct NormGradientCoefficients {
  A offset, slope;
};

// `mean_dz` and `mean_dz_n` are means over the whole group: of dz, and of dz
// times the normalised value. Both are 0 for fixed statistics.
template <typename A>
HEADROOM_HD NormGradientCoefficients<A> norm_gradient_coefficients(
    double mean, double inverse_deviation, double weight, double mean_dz,
    double mean_dz_n) {
  const double scale = inverse_deviation * weight;
  const double slope = scale * inverse_deviation * mean_dz_n;
  const double lost = static_cast<double>(static_cast<A>(mean)) - mean;
  return {static_cast<A>(scale * mean_dz + lost * slope),
          static_cast<A>(slope)};
}

template <typename A>
HEADROOM_HD A norm_gradient(A y, A dz, const NormCoefficients<A>& c,
                            const NormGradientCoefficients<A>& g) {
  return c.scale * dz - g.offset - (y - c.mean) * g.slope;
}

}  // namespace headroom::kernels
