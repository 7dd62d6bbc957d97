#include "worker/model/conv_block.h"

#include <ATen/ops/add.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "parallel/base/check.h"
#include "tests/worker/model/conv_block_fixture.h"

namespace headroom::model {

void PrintTo(const BlockCase& block, std::ostream* stream) {
  *stream << block.channels_in << " to " << block.channels_out << " channels, "
          << block.kernel << "x" << block.kernel << " stride " << block.stride
          << ", map " << block.height << "x" << block.width;
  for (int64_t size : block.group_sizes) *stream << ", group of " << size;
  *stream << ", " << c10::toString(block.scalar_type);
}

namespace {

class ConvBlockTest : public testing::TestWithParam<BlockCase> {};

// Output and gradients are compared with ATen's operators in float64. A float32
// block is compared with the float64 result of the same numbers.
TEST_P(ConvBlockTest, EqualsAtenOperators) {
  const BlockCase& block = GetParam();
  const double tolerance = block.scalar_type == at::kDouble ? 1e-12 : 2e-5;
  BlockTensors tensors = random_tensors(block, 7);
  BlockTensors expected = copied(tensors, at::kDouble);

  const at::Tensor out =
      conv_block(arguments_of(block, tensors), training_context(block));
  out.backward(tensors.dout);
  const at::Tensor reference = reference_block(block, expected);
  reference.backward(expected.dout);

  EXPECT_EQ(out.scalar_type(), block.scalar_type);
  EXPECT_TRUE(out.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LE(relative_error(out, reference), tolerance);
  EXPECT_LE(relative_error(tensors.x.grad(), expected.x.grad()), tolerance);
  EXPECT_LE(relative_error(tensors.weight.grad(), expected.weight.grad()),
            tolerance);
  EXPECT_LE(
      relative_error(tensors.norm_weight.grad(), expected.norm_weight.grad()),
      tolerance);
  EXPECT_LE(relative_error(tensors.norm_bias.grad(), expected.norm_bias.grad()),
            tolerance);
}

std::vector<BlockCase> shapes() {
  std::vector<BlockCase> cases;
  for (at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (int64_t channels : {1, 3, 16, 17, 64, 80})
      cases.push_back({5, channels, 3, 1, 1, 7, 5, {3}, type});
    cases.push_back({3, 16, 6, 2, 2, 32, 64, {2}, type});
    cases.push_back({16, 24, 3, 2, 1, 9, 11, {2}, type});
    cases.push_back({16, 32, 1, 1, 0, 9, 11, {2}, type});
    cases.push_back({32, 16, 1, 2, 0, 8, 8, {2}, type});
    cases.push_back({1, 1, 1, 1, 0, 1, 2, {5}, type});
    cases.push_back({8, 16, 1, 1, 0, 40, 40, {16}, type});
    // With fewer than 16 samples of many pixels, the convolution is computed
    // over flat samples.
    cases.push_back({16, 32, 1, 1, 0, 12, 11, {2, 1}, type});
    cases.push_back({8, 17, 1, 1, 0, 211, 1, {1}, type});
    cases.push_back({8, 16, 1, 1, 0, 20, 20, {15}, type});
    cases.push_back({8, 16, 3, 1, 1, 6, 6, {2, 2, 2}, type});
    cases.push_back({8, 17, 3, 2, 1, 5, 7, {4, 1, 3}, type});
    cases.push_back({64, 128, 1, 1, 0, 1, 1, {16, 5}, type});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvBlockTest, testing::ValuesIn(shapes()));

// Convolutions with groups of several channels and of one channel, and every
// activation.
std::vector<BlockCase> variants() {
  std::vector<BlockCase> cases;
  for (at::ScalarType type : {at::kDouble, at::kFloat}) {
    cases.push_back({16, 24, 3, 1, 1, 9, 8, {2, 1}, type, 4});
    cases.push_back({16, 16, 5, 1, 2, 9, 8, {2}, type, 16});
    cases.push_back({12, 24, 3, 2, 1, 8, 10, {2}, type, 12});
    cases.push_back({8, 16, 1, 1, 0, 20, 20, {2}, type, 4});
    for (const layers::ActivationFunction& activation :
         {layers::kRelu, layers::kIdentity,
          layers::ActivationFunction{layers::ActivationKind::kLeaky, 0.1},
          layers::ActivationFunction{layers::ActivationKind::kHardswish},
          layers::ActivationFunction{layers::ActivationKind::kMish}})
      cases.push_back({8, 17, 3, 1, 1, 7, 5, {2, 3}, type, 1, activation});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Variants, ConvBlockTest,
                         testing::ValuesIn(variants()));

at::Tensor concatenated(const at::Tensor& a, const at::Tensor& b) {
  return at::cat({a, b, at::mul(a, b)}, 1);
}

at::Tensor added(const at::Tensor& a, const at::Tensor& b) {
  return at::add(a, b);
}

// A concatenation passes slices of its gradient back, and a sum passes the same
// gradient twice. The block must not write to these gradients.
TEST(ConvBlock, GradientsThatOthersHoldAreNotTouched) {
  for (int64_t channels : {3, 16, 80}) {
    for (auto combine : {concatenated, added}) {
      const BlockCase block{4, channels, 3, 1, 1, 9, 8, {2, 2}};
      BlockTensors first = random_tensors(block, 31);
      BlockTensors second = random_tensors(block, 32);
      BlockTensors expected_first = copied(first, at::kDouble);
      BlockTensors expected_second = copied(second, at::kDouble);
      const StepContext context = training_context(block);
      const at::Tensor out =
          combine(conv_block(arguments_of(block, first), context),
                  conv_block(arguments_of(block, second), context));
      const at::Tensor dout = at::randn_like(out);
      const at::Tensor before = dout.clone();
      out.backward(dout);
      combine(reference_block(block, expected_first),
              reference_block(block, expected_second))
          .backward(before);

      EXPECT_TRUE(at::equal(dout, before));
      EXPECT_LE(relative_error(first.x.grad(), expected_first.x.grad()), 1e-12);
      EXPECT_LE(relative_error(second.x.grad(), expected_second.x.grad()),
                1e-12);
      EXPECT_LE(
          relative_error(second.weight.grad(), expected_second.weight.grad()),
          1e-12);
    }
  }
}

TEST(ConvBlock, GradientIsTheDerivative) {
  BlockCase block{2, 3, 3, 2, 1, 5, 5, {2, 1}};
  const BlockTensors t = random_tensors(block, 3);
  const StepContext context = training_context(block);
  const auto loss = [&] {
    return at::mul(conv_block(arguments_of(block, t), context), t.dout).sum();
  };
  loss().backward();
  constexpr double kStep = 1e-5;
  for (const at::Tensor& parameter : t.leaves()) {
    at::Tensor direction = at::randn_like(parameter);
    at::NoGradGuard guard;
    parameter.add_(direction, kStep);
    const double above = loss().item().toDouble();
    parameter.add_(direction, -2 * kStep);
    const double below = loss().item().toDouble();
    parameter.add_(direction, kStep);
    const double expected =
        at::mul(parameter.grad(), direction).sum().item().toDouble();
    EXPECT_NEAR((above - below) / (2 * kStep), expected,
                1e-7 * std::max(1.0, std::abs(expected)));
  }
}

TEST(ConvBlock, RepeatsBitIdenticallyForAnyNumberOfThreads) {
  BlockCase block{16, 24, 3, 1, 1, 60, 60, {4, 4}, at::kFloat};
  std::vector<std::vector<at::Tensor>> runs;
  for (int repeat = 0; repeat < 2; ++repeat) {
    BlockTensors t = random_tensors(block, 11);
    const at::Tensor out =
        conv_block(arguments_of(block, t), training_context(block));
    out.backward(t.dout);
    runs.push_back({out, t.x.grad(), t.weight.grad(), t.norm_weight.grad(),
                    t.norm_bias.grad()});
  }
  for (size_t i = 0; i < runs[0].size(); ++i)
    EXPECT_TRUE(at::equal(runs[0][i], runs[1][i])) << "tensor " << i;
}

TEST(ConvBlock, FrozenInputAndWeightGetNoGradient) {
  BlockCase block;
  BlockTensors t = random_tensors(block, 5);
  BlockTensors expected = copied(t, at::kDouble);
  t.x = t.x.detach();
  t.weight = t.weight.detach();
  conv_block(arguments_of(block, t), training_context(block)).backward(t.dout);
  reference_block(block, expected).backward(expected.dout);
  EXPECT_FALSE(t.x.grad().defined());
  EXPECT_FALSE(t.weight.grad().defined());
  EXPECT_LE(relative_error(t.norm_weight.grad(), expected.norm_weight.grad()),
            1e-12);
}

TEST(ConvBlock, AnyMemoryFormatIsRight) {
  BlockCase block{8, 16, 3, 1, 1, 6, 6, {2}};
  BlockTensors t = random_tensors(block, 6);
  BlockTensors planar = copied(t, at::kDouble);
  planar.x = leaf(t.x.contiguous());
  planar.weight = leaf(t.weight.contiguous());
  const StepContext context = training_context(block);
  const at::Tensor out = conv_block(arguments_of(block, t), context);
  out.backward(t.dout);
  const at::Tensor same = conv_block(arguments_of(block, planar), context);
  same.backward(t.dout.contiguous());
  EXPECT_LE(relative_error(same, out), 1e-13);
  EXPECT_LE(relative_error(planar.x.grad(), t.x.grad()), 1e-13);
  EXPECT_LE(relative_error(planar.weight.grad(), t.weight.grad()), 1e-13);
}

TEST(ConvBlock, ChannelsWithALargeMeanKeepTheirPrecision) {
  BlockCase block{1, 16, 1, 1, 0, 32, 32, {4}, at::kFloat};
  BlockTensors t = random_tensors(block, 8);
  t.x = leaf(t.x + 3000.0);
  t.weight = leaf(at::ones_like(t.weight));
  BlockTensors expected = copied(t, at::kDouble);
  const at::Tensor out =
      conv_block(arguments_of(block, t), training_context(block));
  out.backward(t.dout);
  const at::Tensor reference = reference_block(block, expected);
  reference.backward(expected.dout);
  EXPECT_LE(relative_error(out, reference), 2e-6);
  EXPECT_LE(relative_error(t.x.grad(), expected.x.grad()), 2e-5);
  EXPECT_LE(relative_error(t.norm_weight.grad(), expected.norm_weight.grad()),
            2e-5);
}

TEST(ConvBlock, EvaluationUsesRunningStatistics) {
  for (at::ScalarType type : {at::kDouble, at::kFloat}) {
    BlockCase block{8, 17, 3, 1, 1, 6, 5, {3}, type};
    BlockTensors t = random_tensors(block, 9);
    BlockTensors expected = copied(t, at::kDouble);
    const auto reference = [&] {
      return at::silu(
          at::batch_norm(at::conv2d(expected.x, expected.weight, {},
                                    block.stride, block.padding),
                         expected.norm_weight, expected.norm_bias,
                         expected.running_mean, expected.running_var, false,
                         kBatchNormMomentum, kBatchNormEpsilon, false));
    };
    const double tolerance = type == at::kDouble ? 1e-12 : 2e-5;
    {
      at::NoGradGuard guard;
      const at::Tensor out = conv_block(arguments_of(block, t), StepContext());
      EXPECT_FALSE(out.requires_grad());
      EXPECT_LE(relative_error(out, reference()), tolerance);
    }
    conv_block(arguments_of(block, t), StepContext()).backward(t.dout);
    reference().backward(expected.dout);
    EXPECT_LE(relative_error(t.x.grad(), expected.x.grad()), tolerance);
    EXPECT_LE(relative_error(t.norm_weight.grad(), expected.norm_weight.grad()),
              tolerance);
  }
}

TEST(ConvBlock, AddsEachCountedGroupToTheBatchNormSums) {
  BlockCase block{4, 6, 3, 1, 1, 5, 5, {2, 3, 1}};
  const BlockTensors t = random_tensors(block, 10);
  constexpr int64_t kOffset = 5;
  StepContext context = training_context(block);
  context.groups[1].counts_here = false;
  context.batch_norm_sums = at::zeros({kOffset + 12 + 3}, at::kDouble);
  ConvBlockArguments arguments = arguments_of(block, t);
  arguments.sums_offset = kOffset;
  conv_block(arguments, context);

  const at::Tensor y = at::conv2d(t.x, t.weight, {}, 1, 1).detach();
  at::Tensor expected = at::zeros({2, 6}, at::kDouble);
  for (const at::Tensor& group : {y.slice(0, 0, 2), y.slice(0, 5, 6)}) {
    expected[0] += group.mean(at::IntArrayRef{0, 2, 3});
    expected[1] += group.var(at::IntArrayRef{0, 2, 3}, /*unbiased=*/true);
  }
  const at::Tensor slice = context.batch_norm_sums.slice(0, 5, 17);
  EXPECT_LE(relative_error(slice.reshape({2, 6}), expected), 1e-12);
  EXPECT_TRUE(at::equal(context.batch_norm_sums.slice(0, 0, kOffset),
                        at::zeros({kOffset}, at::kDouble)));
  EXPECT_TRUE(at::equal(context.batch_norm_sums.slice(0, kOffset + 12),
                        at::zeros({3}, at::kDouble)));
}

TEST(ConvBlock, KeepsNonFiniteValuesNonFinite) {
  for (double value : {std::nan(""), double(INFINITY), -double(INFINITY)}) {
    BlockCase block{1, 16, 1, 1, 0, 4, 4, {2}, at::kFloat};
    BlockTensors t = random_tensors(block, 12);
    {
      at::NoGradGuard guard;
      t.x[0][0][2][1] = value;
    }
    const at::Tensor out =
        conv_block(arguments_of(block, t), training_context(block));
    EXPECT_FALSE(std::isfinite(out.sum().item().toDouble())) << value;
  }
}

TEST(ConvBlock, RefusesGroupsThatDoNotCoverTheSamples) {
  BlockCase block{4, 6, 3, 1, 1, 5, 5, {2, 3}};
  const BlockTensors t = random_tensors(block, 13);
  StepContext context = training_context(block);
  context.groups.pop_back();
  EXPECT_THROW(conv_block(arguments_of(block, t), context), CheckFailure);
  context = training_context(block);
  context.groups[1].local_begin = 1;
  EXPECT_THROW(conv_block(arguments_of(block, t), context), CheckFailure);
}

TEST(ConvBlock, RefusesASingleValuePerChannel) {
  BlockCase block{4, 6, 1, 1, 0, 1, 1, {1}};
  const BlockTensors t = random_tensors(block, 14);
  EXPECT_THROW(conv_block(arguments_of(block, t), training_context(block)),
               CheckFailure);
}

}  // namespace
}  // namespace headroom::model
