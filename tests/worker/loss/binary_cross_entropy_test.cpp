// The kernels equal PyTorch's operators and autograd, composed as in the
// papers.
#include "worker/loss/level_loss.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/sigmoid.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace headroom::loss {
namespace {

struct Case {
  double target;
  kernels::EntropyRule rule;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const double target : {0.0, 0.05, 0.4, 1.0})
    for (const double weight : {1.0, 1.7})
      for (const double gamma : {0.0, 0.7, 1.5})
        all.push_back({target, {weight, gamma}});
  return all;
}

at::Tensor reference(const at::Tensor& x, const Case& c) {
  const at::Tensor t = at::full_like(x, c.target);
  at::Tensor values = at::binary_cross_entropy_with_logits(
      x, t, {}, at::full({1}, c.rule.positive_weight, at::kDouble),
      at::Reduction::None);
  if (c.rule.focal_gamma == 0) return values;
  const at::Tensor p = at::sigmoid(x);
  const at::Tensor p_t = p.mul(c.target).add(p.neg().add(1).mul(1 - c.target));
  return values.mul(c.target * .25 + (1 - c.target) * .75)
      .mul(p_t.neg().add(1).pow(c.rule.focal_gamma));
}

TEST(BinaryCrossEntropyTest, EntriesAndMapsMatchOperators) {
  for (const Case& c : cases()) {
    const std::string what = std::to_string(c.target) + " " +
                             std::to_string(c.rule.positive_weight) + " " +
                             std::to_string(c.rule.focal_gamma);
    const at::Tensor x =
        at::linspace(-9, 9, 37, at::kDouble).requires_grad_(true);
    const at::Tensor values = reference(x, c);
    values.sum().backward();
    const at::Tensor logits = x.detach();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const kernels::EntropyTerm term =
          kernels::entropy(logits[i].item<double>(), c.target, c.rule);
      EXPECT_NEAR(term.value, values[i].item<double>(), 1e-12) << what;
      EXPECT_NEAR(term.derivative, x.grad()[i].item<double>(), 1e-12) << what;
    }
    EXPECT_NEAR(entropy_sum(logits, c.target, c.rule),
                values.sum().item<double>(), 1e-11)
        << what;
    EXPECT_TRUE(at::allclose(entropy_derivative(logits, c.target, c.rule),
                             x.grad(), 1e-10, 1e-13))
        << what;
  }
}

TEST(BinaryCrossEntropyTest, SaturatedLogitsStayFinite) {
  for (const Case& c : cases())
    for (const auto type : {at::kFloat, at::kDouble})
      for (const double x : {-1000.0, -200.0, 200.0, 1000.0}) {
        const at::Tensor logits = at::full({1}, x, type);
        const kernels::EntropyTerm term = kernels::entropy(x, c.target, c.rule);
        EXPECT_TRUE(std::isfinite(term.value) && std::isfinite(term.derivative))
            << x;
        EXPECT_NEAR(entropy_sum(logits, c.target, c.rule), term.value,
                    1e-6 * term.value + 1e-30)
            << x;
        const double derivative =
            entropy_derivative(logits, c.target, c.rule).item<double>();
        EXPECT_NEAR(derivative, term.derivative,
                    1e-6 * std::abs(term.derivative) + 1e-7)
            << x;
      }
}

TEST(BinaryCrossEntropyTest, ConfidentNegativesAreNotRoundedAway) {
  // softplus(-30) is 9e-14: a form that subtracts would give 0 in float.
  const at::Tensor logits = at::full({1}, -30.0, at::kFloat);
  EXPECT_NEAR(entropy_sum(logits, 0, {}), std::exp(-30.0), 1e-19);
}

}  // namespace
}  // namespace headroom::loss
