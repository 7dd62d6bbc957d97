#include "worker/loss/binary_cross_entropy.h"

#include <ATen/ops/pow.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sum.h>

#include <limits>

namespace headroom::loss {
namespace {

// Beyond 40 softplus(x) is x in double too; before it exp cannot overflow.
at::Tensor softplus_map(const at::Tensor& x) { return at::softplus(x, 1, 40); }

at::Tensor plain_values(const at::Tensor& x, double target,
                        const kernels::EntropyRule& rule) {
  at::Tensor values = softplus_map(x);
  if (target == 0) return values;
  values.mul_(1 - target);
  return values.add_(softplus_map(x.neg()), rule.positive_weight * target);
}

// q, the probability that the entry is wrong. Kept off zero: there q^(gamma-1)
// may be infinite where the derivative is zero.
at::Tensor wrongness(const at::Tensor& sigmoid, double target) {
  const double smallest = sigmoid.scalar_type() == at::kDouble
                              ? std::numeric_limits<double>::min()
                              : std::numeric_limits<float>::min();
  return sigmoid.mul(1 - 2 * target).add_(target).clamp_min_(smallest);
}

}  // namespace

at::Tensor entropy_total(const at::Tensor& logits, double target,
                         const kernels::EntropyRule& rule) {
  at::Tensor values = plain_values(logits, target, rule);
  if (rule.focal_gamma != 0)
    values.mul_(wrongness(at::sigmoid(logits), target).pow_(rule.focal_gamma))
        .mul_(kernels::focal_alpha(target));
  return values.sum(at::kDouble);
}

double entropy_sum(const at::Tensor& logits, double target,
                   const kernels::EntropyRule& rule) {
  return entropy_total(logits, target, rule).item<double>();
}

at::Tensor entropy_derivative(const at::Tensor& logits, double target,
                              const kernels::EntropyRule& rule) {
  const at::Tensor s = at::sigmoid(logits);
  // (1-t) s - p t (1-s), with p t (1-s) written by s alone.
  const double positive = rule.positive_weight * target;
  at::Tensor derivative = s.mul(1 - target + positive).sub_(positive);
  if (rule.focal_gamma == 0) return derivative;

  const double gamma = rule.focal_gamma;
  const at::Tensor q = wrongness(s, target);
  const at::Tensor q_derivative =
      s.mul(1 - 2 * target).mul_(s.neg().add_(1)).mul_(gamma);
  derivative.add_(
      plain_values(logits, target, rule).mul_(q_derivative).div_(q));
  return derivative.mul_(at::pow(q, gamma)).mul_(kernels::focal_alpha(target));
}

}  // namespace headroom::loss
