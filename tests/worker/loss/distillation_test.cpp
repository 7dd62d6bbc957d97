// The loss against a teacher is zero if the student equals the teacher. Its
// gradient is the derivative of its value. Parts of a batch add up.
#include "worker/loss/distillation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/loss/detection_loss.h"

namespace headroom::loss {
namespace {

// [n, 3, 4, 5, 5 + classes], as a view of a channels-last map.
at::Tensor head(int64_t n, int64_t classes, uint64_t seed) {
  // Not at::manual_seed(): the test device of this program has no generator.
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn({n, 4, 5, 3, 5 + classes}, generator, at::kDouble)
      .permute({0, 3, 1, 2, 4});
}

Distillation rule(const at::Tensor& teacher) {
  Distillation made;
  made.teacher = teacher;
  made.box = 0.3;
  made.obj = 0.7;
  made.cls = 0.2;
  return made;
}

double sum(const DistilledLevel& level) {
  return level.items[0] + level.items[1] + level.items[2];
}

TEST(Distillation, AStudentEqualToItsTeacherHasNoLoss) {
  const at::Tensor teacher = head(2, 3, 1);
  const DistilledLevel level = distil_level(teacher.clone(), rule(teacher));
  EXPECT_NEAR(sum(level), 0, 1e-12);
  EXPECT_LT(level.gradient.abs().max().item<double>(), 1e-12);
  EXPECT_GT(sum(distil_level(head(2, 3, 2), rule(teacher))), 0.1);
}

TEST(Distillation, TheGradientIsTheDerivative) {
  const at::Tensor teacher = head(2, 3, 1), student = head(2, 3, 2);
  const at::Tensor direction = head(2, 3, 3);
  const DistilledLevel level = distil_level(student, rule(teacher));
  const double along = level.gradient.mul(direction).sum().item<double>();
  constexpr double kStep = 1e-6;
  const auto at_step = [&](double step) {
    return sum(distil_level(student.add(direction, step), rule(teacher)));
  };
  EXPECT_NEAR(along, (at_step(kStep) - at_step(-kStep)) / (2 * kStep),
              1e-7 * std::abs(along));
}

// Where the teacher detects nothing, the student learns only objectness.
TEST(Distillation, EmptyCellsTeachObjectness) {
  const at::Tensor teacher = head(1, 3, 1), student = head(1, 3, 2);
  teacher.select(4, 4).fill_(-9);
  const DistilledLevel level = distil_level(student, rule(teacher));
  EXPECT_EQ(level.items[0], 0);
  EXPECT_GT(level.items[1], 0);
  EXPECT_EQ(level.items[2], 0);
  EXPECT_EQ(level.gradient.select(4, 0).abs().max().item<double>(), 0);
}

LevelTargets no_targets() {
  return assign_targets({}, {{4, 5, {{1, 1}, {2, 2}, {3, 3}}}}, 4, at::kDouble)
      .front();
}

// The loss of the batch is the sum of the losses of its parts, and so is the
// gradient after backward. This holds with and without matches.
TEST(Distillation, PartsOfABatchAddUp) {
  LossGains gains;
  gains.box = 0.05;
  gains.obj = 1;
  gains.cls = 0.5;
  gains.balance = {4};
  gains.num_classes = 3;
  const at::Tensor teacher = head(4, 3, 1);
  const GlobalCounts counts{4, {0}};
  const auto run = [&](int64_t begin, int64_t size, at::Tensor* gradient) {
    at::Tensor student =
        head(4, 3, 2).narrow(0, begin, size).detach().requires_grad_(true);
    const DetectionLoss loss =
        detection_loss({student}, {no_targets()}, counts, gains,
                       {teacher.narrow(0, begin, size)});
    loss.total.backward();
    *gradient = student.grad();
    return loss.total.item<double>();
  };
  at::Tensor whole, first, second;
  const double all = run(0, 4, &whole);
  const double parts = run(0, 1, &first) + run(1, 3, &second);
  EXPECT_NEAR(all, parts, 1e-12 * all);
  EXPECT_LT((whole - at::cat({first, second})).abs().max().item<double>(),
            1e-14);
  gains.distill = 0;
  EXPECT_LT(run(0, 4, &whole), all);
}

}  // namespace
}  // namespace headroom::loss
