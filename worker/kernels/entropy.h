// Binary cross-entropy of one logit with a weight for positives, and its focal
// form:
//
//   L(x, t)  = (1 - t) softplus(x) + positive_weight t softplus(-x)
//   focal    = L * (.25 t + .75 (1 - t)) * q^gamma,
//              q = (1 - t) s + t (1 - s), s = sigmoid(x)      (Lin et al. 2017)
//
// nvcc also compiles this code for the device.
#pragma once

#include <cfloat>
#include <cmath>

#include "worker/kernels/element_math.h"

namespace headroom::kernels {

struct EntropyRule {
  double positive_weight = 1;
  double focal_gamma = 0;  // 0 means plain cross-entropy
};

HEADROOM_HD double focal_alpha(double target) {
  constexpr double kAlpha = 0.25;
  return target * kAlpha + (1 - target) * (1 - kAlpha);
}

HEADROOM_HD double softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

// L and dL/dx at one logit.
struct EntropyTerm {
  double value = 0;
  double derivative = 0;
};

HEADROOM_HD EntropyTerm entropy(double x, double target,
                                const EntropyRule& rule) {
  const double s = 1 / (1 + std::exp(-x));
  const double not_s = 1 / (1 + std::exp(x));
  const double positive = rule.positive_weight * target;
  const double value = (1 - target) * softplus(x) + positive * softplus(-x);
  const double derivative = (1 - target) * s - positive * not_s;
  if (rule.focal_gamma == 0) return {value, derivative};

  const double gamma = rule.focal_gamma;
  const double wrong = (1 - target) * s + target * not_s;
  const double q = wrong < DBL_MIN ? DBL_MIN : wrong;
  const double q_derivative = (1 - 2 * target) * s * not_s;
  const double weight = focal_alpha(target) * std::pow(q, gamma);
  return {value * weight,
          weight * (derivative + value * gamma / q * q_derivative)};
}

}  // namespace headroom::kernels
