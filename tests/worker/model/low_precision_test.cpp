// Tests maps of 16 bits beside float32 parameters: in the block, the head and
// the network.
#include <ATen/ops/einsum.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/worker/model/conv_block_fixture.h"
#include "tests/worker/model/tiny_table.h"
#include "worker/model/detect.h"
#include "worker/model/layer_graph.h"

namespace headroom::model {
namespace {

const auto kChannelsLast = at::MemoryFormat::ChannelsLast;

// Half a unit in the last place, relative.
double rounding(at::ScalarType type) {
  return type == at::kBFloat16 ? 1.0 / 256 : 1.0 / 2048;
}

class LowPrecision : public testing::TestWithParam<at::ScalarType> {};

// The block and the float64 reference start from the same rounded numbers. The
// block then rounds the output of its convolution, its own output and two
// gradients.
TEST_P(LowPrecision, ABlockEqualsFloat64WithinItsRounding) {
  const at::ScalarType type = GetParam();
  for (const BlockCase& block : {BlockCase{5, 17, 3, 1, 1, 7, 5, {3}},
                                 BlockCase{8, 16, 3, 2, 1, 9, 11, {2, 2}},
                                 BlockCase{3, 16, 6, 2, 2, 32, 64, {2}},
                                 BlockCase{16, 24, 1, 1, 0, 16, 16, {4, 1, 3}},
                                 BlockCase{8, 80, 1, 1, 0, 40, 40, {16}}}) {
    BlockTensors tensors = copied(random_tensors(block, 7), at::kFloat);
    tensors.x = leaf(tensors.x.detach().to(type));
    tensors.weight = leaf(tensors.weight.detach().to(type).to(at::kFloat));
    tensors.dout = tensors.dout.to(type);
    BlockTensors expected = copied(tensors, at::kDouble);
    const at::Tensor out =
        conv_block(arguments_of(block, tensors), training_context(block));
    out.backward(tensors.dout);
    const at::Tensor reference = reference_block(block, expected);
    reference.backward(expected.dout);

    const double tolerance = 6 * rounding(type);
    EXPECT_EQ(out.scalar_type(), type);
    EXPECT_TRUE(out.is_contiguous(kChannelsLast));
    EXPECT_LE(relative_error(out, reference), tolerance);
    const std::vector<at::Tensor> leaves = tensors.leaves();
    for (size_t i = 0; i < leaves.size(); ++i) {
      EXPECT_EQ(leaves[i].grad().scalar_type(), i == 0 ? type : at::kFloat);
      EXPECT_LE(relative_error(leaves[i].grad(), expected.leaves()[i].grad()),
                tolerance)
          << "leaf " << i << " of " << block.channels_out << " channels";
    }
  }
}

TEST_P(LowPrecision, APreparedCopyOfTheWeightGivesTheSame) {
  const BlockCase block{8, 16, 3, 1, 1, 9, 11, {2, 2}};
  BlockTensors cast = copied(random_tensors(block, 3), at::kFloat);
  cast.x = leaf(cast.x.detach().to(GetParam()));
  cast.dout = cast.dout.to(GetParam());
  BlockTensors ready = copied(cast, at::kFloat);
  ready.x = leaf(cast.x.detach());
  const StepContext context = training_context(block);
  const at::Tensor a = conv_block(arguments_of(block, cast), context);
  ConvBlockArguments arguments = arguments_of(block, ready);
  arguments.compute_weight = ready.weight.detach().to(GetParam());
  const at::Tensor b = conv_block(arguments, context);
  a.backward(cast.dout);
  b.backward(cast.dout);
  EXPECT_TRUE(at::equal(a, b));
  EXPECT_TRUE(at::equal(cast.weight.grad(), ready.weight.grad()));
  EXPECT_TRUE(at::equal(cast.x.grad(), ready.x.grad()));
}

TEST_P(LowPrecision, TheHeadsBiasIsNotRounded) {
  at::manual_seed(4);
  const at::Tensor x =
      leaf(at::randn({2, 16, 5, 7}).to(GetParam()).contiguous(kChannelsLast));
  const at::Tensor weight = leaf(at::zeros({21, 16, 1, 1}));
  const at::Tensor bias = leaf(at::randn({21}));
  const at::Tensor y = head_convolution(x, weight, bias, {});
  ASSERT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(y, bias.view({1, -1, 1, 1}).expand_as(y)));
  const at::Tensor dout = at::randn_like(y);
  y.backward(dout);
  EXPECT_LE(relative_error(bias.grad(),
                           dout.to(at::kDouble).sum(at::IntArrayRef{0, 2, 3})),
            1e-6);
  const at::Tensor dweight =
      at::einsum("nfhw,nchw->fc", {dout.to(at::kDouble), x.to(at::kDouble)});
  EXPECT_LE(relative_error(weight.grad().view({21, 16}), dweight),
            3 * rounding(GetParam()));
}

// The network has residuals, concatenations, poolings and upsamplings.
TEST_P(LowPrecision, ANetworksHeadsAreFloat32AndCloseToThoseOfFloat32) {
  const auto run = [](at::ScalarType type) {
    LayerGraph graph(tiny_table(), 3, at::kFloat, 5);
    at::manual_seed(8);
    const at::Tensor images = at::rand({4, 3, 64, 96});
    StepContext context;
    context.training = true;
    context.groups = {{0, 4, 4, true}};
    std::vector<at::Tensor> heads =
        graph.forward(images.to(type).contiguous(kChannelsLast), context);
    at::Tensor sum = at::zeros({});
    for (const at::Tensor& head : heads) sum = sum + head.square().mean();
    sum.backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& head : heads) {
      EXPECT_EQ(head.scalar_type(), at::kFloat);
      all.push_back(head.detach());
    }
    for (const NamedTensor& entry : graph.state()) {
      if (!entry.is_parameter()) continue;
      EXPECT_TRUE(entry.tensor->grad().defined()) << entry.name;
      EXPECT_EQ(entry.tensor->grad().scalar_type(), at::kFloat);
    }
    return all;
  };
  const auto exact = run(at::kFloat), rounded = run(GetParam());
  for (size_t level = 0; level < exact.size(); ++level)
    EXPECT_LE(relative_error(rounded[level], exact[level]),
              20 * rounding(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Types, LowPrecision,
                         testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

}  // namespace
}  // namespace headroom::model
