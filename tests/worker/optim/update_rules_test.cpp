// SGD, Adam and AdamW equal PyTorch's definitions, which are written with
// tensors here.
#include "worker/optim/optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::optim {
namespace {

constexpr int64_t kSize = 200003;  // several chunks of threads, and a remainder
constexpr double kMomentum = 0.9, kClip = 0.25;  // kMomentum: beta 1 of Adam

const std::vector<Segment>& segments() {
  // There is a gap of 7 elements after the first segment, and of 3 at the end.
  static const std::vector<Segment> all = {{0, 1000, kBiasGroup},
                                           {1007, 150000, kWeightGroup},
                                           {151007, 48993, kNormWeightGroup}};
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

// PyTorch's SGD(nesterov=True), segment by segment.
struct SgdReference {
  at::Tensor parameters, buffer;
  void step(const at::Tensor& gradients, bool first) {
    for (const Segment& s : segments()) {
      const GroupSettings group = groups()[static_cast<size_t>(s.group)];
      at::Tensor p = parameters.narrow(0, s.offset, s.size);
      at::Tensor b = buffer.narrow(0, s.offset, s.size);
      const at::Tensor g = gradients.narrow(0, s.offset, s.size)
                               .mul(kClip)
                               .add(p, group.weight_decay);
      if (first)
        b.copy_(g);
      else
        b.mul_(kMomentum).add_(g);
      p.sub_(g.add(b, kMomentum), group.lr);
    }
  }
};

TEST(SgdTest, FollowsPyTorch) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    at::Tensor parameters = start(type);
    at::Tensor buffer = at::zeros_like(parameters);
    SgdReference reference{start(type), at::zeros_like(parameters)};
    for (int64_t step = 0; step < 4; ++step) {
      const at::Tensor g = gradient(step, type);
      sgd_step(parameters, g, buffer, segments(), groups(), kMomentum, kClip,
               step == 0);
      reference.step(g, step == 0);
    }
    const double tolerance = type == at::kDouble ? 1e-13 : 1e-5;
    EXPECT_TRUE(
        at::allclose(parameters, reference.parameters, tolerance, tolerance));
    EXPECT_TRUE(at::allclose(buffer, reference.buffer, tolerance, tolerance));
    EXPECT_FALSE(at::allclose(parameters, start(type), 1e-3, 1e-3));
  }
}

TEST(SgdTest, FirstStepIgnoresTheBuffer) {
  at::Tensor from_zero = start(at::kDouble), from_rubbish = from_zero.clone();
  at::Tensor zero = at::zeros_like(from_zero);
  at::Tensor rubbish = at::full_like(from_zero, 1e6);
  const at::Tensor g = gradient(0, at::kDouble);
  sgd_step(from_zero, g, zero, segments(), groups(), kMomentum, 1, true);
  sgd_step(from_rubbish, g, rubbish, segments(), groups(), kMomentum, 1, true);
  EXPECT_TRUE(at::equal(from_zero, from_rubbish));
  // The flag makes no difference if the buffer is zero before the first step.
  at::Tensor untold = start(at::kDouble);
  zero.zero_();
  sgd_step(untold, g, zero, segments(), groups(), kMomentum, 1, false);
  EXPECT_TRUE(at::equal(from_zero, untold));
}

TEST(SgdTest, ValuesOutsideSegmentsStay) {
  at::Tensor parameters = start(at::kFloat);
  at::Tensor buffer = at::full_like(parameters, 5);
  sgd_step(parameters, gradient(0, at::kFloat), buffer, segments(), groups(),
           kMomentum, 1, false);
  for (const auto& [offset, size] :
       std::vector<std::pair<int64_t, int64_t>>{{1000, 7}, {200000, 3}}) {
    EXPECT_TRUE(at::equal(parameters.narrow(0, offset, size),
                          start(at::kFloat).narrow(0, offset, size)));
    EXPECT_TRUE(at::equal(buffer.narrow(0, offset, size),
                          at::full_like(buffer, 5).narrow(0, offset, size)));
  }
}

TEST(SgdTest, ThreadsChangeNothing) {
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    at::Tensor parameters = start(at::kFloat);
    at::Tensor buffer = at::zeros_like(parameters);
    for (int64_t step = 0; step < 3; ++step)
      sgd_step(parameters, gradient(step, at::kFloat), buffer, segments(),
               groups(), kMomentum, kClip, step == 0);
    results.push_back(parameters);
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(results[0], results[1]));
}

TEST(SgdTest, MismatchesAreRefused) {
  at::Tensor parameters = start(at::kFloat);
  at::Tensor buffer = at::zeros_like(parameters);
  const at::Tensor g = gradient(0, at::kFloat);
  const auto step = [&](const at::Tensor& gradients,
                        const std::vector<Segment>& where) {
    sgd_step(parameters, gradients, buffer, where, groups(), kMomentum, 1,
             false);
  };
  EXPECT_THROW(step(g.narrow(0, 1, kSize - 1), segments()), CheckFailure);
  EXPECT_THROW(step(g.to(at::kDouble), segments()), CheckFailure);
  EXPECT_THROW(step(g, {{0, kSize + 1, 0}}), CheckFailure);
  EXPECT_THROW(step(g, {{10, 10, 0}, {19, 10, 0}}), CheckFailure);
  EXPECT_THROW(step(g, {{0, 10, 3}}), CheckFailure);
}

// torch.optim.Adam and AdamW (foreach=False).
struct AdamReference {
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
      mm.lerp_(g, 1 - kMomentum);
      vv.mul_(0.999).addcmul_(g, g, 1 - 0.999);
      const double n = static_cast<double>(t);
      const at::Tensor denominator =
          vv.sqrt().div_(std::sqrt(1 - std::pow(0.999, n))).add_(1e-8);
      pp.addcdiv_(mm, denominator, -group.lr / (1 - std::pow(kMomentum, n)));
    }
  }
};

void follow_reference(bool decoupled, at::ScalarType type, double tolerance) {
  at::Tensor p = start(type), m = at::zeros_like(p), v = at::zeros_like(p);
  AdamReference reference{decoupled, p.clone(), m.clone(), v.clone()};
  for (int64_t t = 1; t <= 5; ++t) {
    adam_step(p, gradient(t, type), m, v, segments(), groups(),
              {kMomentum, t, kClip, decoupled});
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

TEST(OptimizerTest, TheMomentsAreAsManyAsItsKindDeclares) {
  for (const configs::OptimizerDescription& one : configs::kOptimizers) {
    EXPECT_EQ(moment_names(one.value).size(),
              static_cast<size_t>(one.num_moments))
        << one.name;
  }
}

TEST(OptimizerTest, EachNameSelectsItsArithmetic) {
  const std::vector<Segment> segments = {{0, 40, kWeightGroup}};
  OptimizerStep step;
  step.groups[kWeightGroup] = {0.1, 0.2};
  step.momentum = 0.9;
  step.clip_coefficient = 0.5;
  const at::Tensor start = at::linspace(-1, 2, 40, at::kDouble);
  const at::Tensor gradient = start.cos();
  const auto zeros = [&] { return at::zeros_like(start); };

  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    at::Tensor actual = start.clone(), expected = start.clone();
    std::vector<at::Tensor> moments;
    while (moments.size() < moment_names(kind).size()) {
      moments.push_back(zeros());
    }
    optimizer_step(kind, step, actual, gradient, moments, segments);
    if (kind == OptimizerKind::kSgd) {
      sgd_step(expected, gradient, zeros(), segments, step.groups, 0.9, 0.5,
               true);
    } else {
      adam_step(expected, gradient, zeros(), zeros(), segments, step.groups,
                {0.9, 1, 0.5, kind == OptimizerKind::kAdamW});
    }
    EXPECT_TRUE(at::equal(actual, expected));
    EXPECT_FALSE(at::equal(actual, start));
    moments.pop_back();
    EXPECT_THROW(
        optimizer_step(kind, step, actual, gradient, moments, segments),
        CheckFailure);
  }
}

}  // namespace
}  // namespace headroom::optim
