#include "worker/optim/optimizer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::optim {
namespace {

constexpr int64_t kSize = 70001;
constexpr double kBeta1 = 0.9, kClip = 0.25;

const std::vector<Segment>& segments() {
  static const std::vector<Segment> all = {{0, 1000, kBiasGroup},
                                           {1007, 50000, kWeightGroup},
                                           {51007, 18990, kNormWeightGroup}};
  return all;
}

AllGroupSettings groups() {
  AllGroupSettings settings;
  settings[kBiasGroup] = {0.1, 0};
  settings[kWeightGroup] = {0.01, 0.5};
  settings[kNormWeightGroup] = {0.02, 0};
  return settings;
}

at::Tensor start(at::ScalarType type) {
  return at::linspace(-2, 3, kSize, type);
}

at::Tensor gradient(int64_t step, at::ScalarType type) {
  return start(type).mul(11.0).add_(static_cast<double>(step)).sin_();
}

// torch.optim.Adam and AdamW (foreach=False), written with tensors.
struct Reference {
  bool decoupled;
  at::Tensor p, m, v;
  void step(const at::Tensor& gradients, int64_t t) {
    for (const Segment& s : segments()) {
      const GroupSettings group = groups()[static_cast<size_t>(s.group)];
      at::Tensor pp = p.narrow(0, s.offset, s.size);
      at::Tensor mm = m.narrow(0, s.offset, s.size);
      at::Tensor vv = v.narrow(0, s.offset, s.size);
      at::Tensor g = gradients.narrow(0, s.offset, s.size).mul(kClip);
      if (decoupled) {
        pp.mul_(1 - group.lr * group.weight_decay);
      } else {
        g = g.add(pp, group.weight_decay);
      }
      mm.lerp_(g, 1 - kBeta1);
      vv.mul_(0.999).addcmul_(g, g, 1 - 0.999);
      const double n = static_cast<double>(t);
      const at::Tensor denominator =
          vv.sqrt().div_(std::sqrt(1 - std::pow(0.999, n))).add_(1e-8);
      pp.addcdiv_(mm, denominator, -group.lr / (1 - std::pow(kBeta1, n)));
    }
  }
};

void follow_reference(bool decoupled, at::ScalarType type, double tolerance) {
  at::Tensor p = start(type), m = at::zeros_like(p), v = at::zeros_like(p);
  Reference reference{decoupled, p.clone(), m.clone(), v.clone()};
  for (int64_t t = 1; t <= 5; ++t) {
    adam_step(p, gradient(t, type), m, v, segments(), groups(),
              {kBeta1, t, kClip, decoupled});
    reference.step(gradient(t, type), t);
    EXPECT_TRUE(at::allclose(p, reference.p, tolerance, tolerance)) << t;
    EXPECT_TRUE(at::allclose(m, reference.m, tolerance, tolerance)) << t;
    EXPECT_TRUE(at::allclose(v, reference.v, tolerance, tolerance)) << t;
  }
  EXPECT_FALSE(at::allclose(p, start(type), 1e-3, 1e-3));
}

TEST(AdamTest, AdamWIsPyTorchs) {
  follow_reference(true, at::kDouble, 1e-14);
  follow_reference(true, at::kFloat, 1e-5);
}

TEST(AdamTest, AdamAddsTheDecayToTheGradient) {
  follow_reference(false, at::kDouble, 1e-14);
  follow_reference(false, at::kFloat, 1e-5);
}

TEST(AdamTest, ValuesOutsideSegmentsStay) {
  at::Tensor p = start(at::kDouble), m = at::zeros_like(p),
             v = at::zeros_like(p);
  adam_step(p, gradient(1, at::kDouble), m, v, segments(), groups(), {});
  EXPECT_TRUE(
      at::equal(p.narrow(0, 1000, 7), start(at::kDouble).narrow(0, 1000, 7)));
  EXPECT_EQ(m.narrow(0, 1000, 7).abs().sum().item<double>(), 0);
}

TEST(AdamTest, StepZeroIsRefused) {
  at::Tensor p = start(at::kFloat), m = at::zeros_like(p),
             v = at::zeros_like(p);
  AdamSettings settings;
  settings.step = 0;
  EXPECT_THROW(adam_step(p, p.clone(), m, v, segments(), groups(), settings),
               CheckFailure);
}

}  // namespace
}  // namespace headroom::optim
