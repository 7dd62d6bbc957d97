#include "worker/recompute_runner.h"

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "configs/model_table.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "worker/model/layer_graph.h"

namespace headroom {
namespace {

struct Result {
  std::vector<at::Tensor> gradients;
  at::Tensor batch_norm_sums;
  int64_t kept_bytes = 0;
};

Result forward_and_backward(at::ScalarType type, RowRunner* runner) {
  CountingAllocator::install();
  install_saved_tensor_policies();
  LayerGraph model(load_model_table("yolov5n"), 3, type, 0);
  for (const NamedTensor& entry : model.state()) {
    if (entry.is_parameter()) entry.tensor->requires_grad_();
  }
  Result result;
  result.batch_norm_sums =
      at::zeros({model.batch_norm_sums_size()}, at::kDouble);
  StepContext context;
  context.training = true;
  context.groups = {{0, 2, 2, true}, {2, 4, 2, true}};
  context.batch_norm_sums = result.batch_norm_sums;
  context.runner = runner;
  const at::Tensor images = at::rand({4, 3, 64, 96}, at::TensorOptions(type));
  const int64_t before = CountingAllocator::instance().live_bytes();
  at::Tensor sum;
  for (const at::Tensor& head : model.forward(images, context)) {
    const at::Tensor part = head.sigmoid().sum();
    sum = sum.defined() ? sum.add(part) : part;
  }
  result.kept_bytes = CountingAllocator::instance().live_bytes() - before;
  sum.backward();
  for (const NamedTensor& entry : model.state()) {
    if (entry.is_parameter()) result.gradients.push_back(entry.tensor->grad());
  }
  return result;
}

void expect_same_with_less(at::ScalarType type) {
  at::manual_seed(3);
  const Result keep = forward_and_backward(type, nullptr);
  RecomputeRunner runner;
  at::manual_seed(3);
  const Result again = forward_and_backward(type, &runner);
  ASSERT_EQ(keep.gradients.size(), again.gradients.size());
  for (size_t i = 0; i < keep.gradients.size(); ++i) {
    EXPECT_TRUE(at::equal(keep.gradients[i], again.gradients[i])) << i;
  }
  EXPECT_TRUE(at::equal(keep.batch_norm_sums, again.batch_norm_sums))
      << "a recomputation counts nothing";
  EXPECT_LT(again.kept_bytes, keep.kept_bytes / 2);
}

TEST(RecomputeRunner, IsBitIdenticalInFloat64) {
  expect_same_with_less(at::kDouble);
}

TEST(RecomputeRunner, IsBitIdenticalInFloat32) {
  expect_same_with_less(at::kFloat);
}

}  // namespace
}  // namespace headroom
