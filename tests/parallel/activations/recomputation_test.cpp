#include "parallel/activations/recomputation.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/sigmoid.h>
#include <gtest/gtest.h>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"

namespace headroom::activations {
namespace {

class Recomputation : public testing::Test {
 protected:
  void SetUp() override {
    CountingAllocator::install();
    install_saved_tensor_policies();
  }
};

at::Tensor chain(at::Tensor x, const at::Tensor& weight) {
  for (int i = 0; i < 4; ++i) x = at::mul(at::sigmoid(x), weight);
  return x;
}

TEST_F(Recomputation, GradientsAreBitIdenticalAndLessIsKept) {
  at::Tensor x = at::rand({1 << 16}, at::kDouble).requires_grad_();
  at::Tensor weight = at::rand({1 << 16}, at::kDouble).requires_grad_();
  CountingAllocator& memory = CountingAllocator::instance();

  int64_t before = memory.live_bytes();
  at::Tensor plain = at::mul(chain(x, weight), x).sum();
  const int64_t plain_bytes = memory.live_bytes() - before;
  plain.backward();
  const at::Tensor dx = x.grad().clone(), dweight = weight.grad().clone();
  x.mutable_grad().reset();
  weight.mutable_grad().reset();

  int runs = 0;
  before = memory.live_bytes();
  const auto piece = [&](const std::vector<at::Tensor>& inputs, Pass pass) {
    EXPECT_EQ(pass, runs == 0 ? Pass::kFirst : Pass::kAgain);
    ++runs;
    return std::vector<at::Tensor>{chain(inputs[0], weight)};
  };
  at::Tensor lean = at::mul(recompute(piece, {x})[0], x).sum();
  const int64_t lean_bytes = memory.live_bytes() - before;
  EXPECT_EQ(lean.item<double>(), plain.item<double>());
  lean.backward();
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(at::equal(x.grad(), dx));
  EXPECT_TRUE(at::equal(weight.grad(), dweight));
  // The recomputed piece keeps none of its eight maps; only the product with x
  // keeps its result.
  EXPECT_LT(lean_bytes, plain_bytes / 3);
}

TEST_F(Recomputation, WithoutABackwardNothingIsRunAgain) {
  int runs = 0;
  const at::Tensor x = at::rand({8}, at::kDouble).requires_grad_();
  recompute(
      [&](const std::vector<at::Tensor>& inputs, Pass) {
        ++runs;
        return std::vector<at::Tensor>{at::sigmoid(inputs[0])};
      },
      {x});
  EXPECT_EQ(runs, 1);
}

TEST_F(Recomputation, APieceThatDoesSomethingElseIsRefused) {
  const at::Tensor x = at::rand({8}, at::kDouble).requires_grad_();
  const auto piece = [](const std::vector<at::Tensor>& inputs, Pass pass) {
    at::Tensor y = at::sigmoid(inputs[0]);
    if (pass == Pass::kAgain) y = at::sigmoid(y);
    return std::vector<at::Tensor>{y};
  };
  at::Tensor sum = recompute(piece, {x})[0].sum();
  EXPECT_THROW(sum.backward(), CheckFailure);
}

}  // namespace
}  // namespace headroom::activations
