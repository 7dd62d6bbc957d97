#include "worker/optim/optimizer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::optim {
namespace {

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
