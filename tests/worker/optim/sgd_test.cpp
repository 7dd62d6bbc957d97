#include "worker/optim/optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <vector>

#include "parallel/base/check.h"

namespace headroom::optim {
namespace {

constexpr int64_t kSize = 200003;  // several chunks of threads, and a remainder
constexpr double kMomentum = 0.9, kClip = 0.25;

const std::vector<Segment>& segments() {
  // A gap of 7 elements after the first, 3 at the end.
  static const std::vector<Segment> all = {{0, 1000, kBiasGroup},
                                           {1007, 150000, kWeightGroup},
                                           {151007, 48993, kNormWeightGroup}};
  return all;
}

std::array<GroupSettings, 3> groups() {
  std::array<GroupSettings, 3> settings;
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

// PyTorch's SGD(nesterov=True) written with tensors, segment by segment.
struct Reference {
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
    Reference reference{start(type), at::zeros_like(parameters)};
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
  // A zeroed buffer makes the first step the same without a flag for it.
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

}  // namespace
}  // namespace headroom::optim
