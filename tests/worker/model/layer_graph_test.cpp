// Tests forward and backward of a small graph, empty batches, the memory
// layout, fresh weights, and freezing.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "tests/worker/model/tiny_table.h"
#include "worker/model/layer_graph.h"

namespace headroom::model {
namespace {

LayerGraph tiny_graph(at::ScalarType type = at::kFloat, uint64_t seed = 0) {
  at::set_num_threads(1);
  return LayerGraph(tiny_table(), 2, type, seed);
}

at::Tensor images(int64_t n, at::ScalarType type) {
  return at::rand({n, 3, 64, 96}, type)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

StepContext training(int64_t n) {
  StepContext context;
  context.training = true;
  context.groups = {{0, n, n, true}};
  return context;
}

class LayerGraphPrecision : public testing::TestWithParam<at::ScalarType> {};

TEST_P(LayerGraphPrecision, HeadsAndGradientsHaveTheirShapes) {
  LayerGraph graph = tiny_graph(GetParam());
  const auto heads = graph.forward(images(2, GetParam()), training(2));
  ASSERT_EQ(heads.size(), 2u);
  EXPECT_EQ(heads[0].sizes(), at::IntArrayRef({2, 2, 8, 12, 7}));
  EXPECT_EQ(heads[1].sizes(), at::IntArrayRef({2, 2, 4, 6, 7}));
  (heads[0].square().sum() + heads[1].square().sum()).backward();
  for (const NamedTensor& entry : graph.state()) {
    if (!entry.is_parameter()) continue;
    ASSERT_TRUE(entry.tensor->grad().defined()) << entry.name;
    EXPECT_EQ(entry.tensor->grad().scalar_type(), GetParam());
    EXPECT_GT(entry.tensor->grad().abs().max().item<double>(), 0) << entry.name;
  }
}

// The derivative is compared along a random direction in all parameters at
// once. In shortcuts, forks and concatenations, branches share gradients.
TEST(LayerGraph, BackwardIsTheDerivativeOfForward) {
  at::manual_seed(0);
  LayerGraph graph = tiny_graph(at::kDouble);
  const at::Tensor input = images(4, at::kDouble);
  StepContext context = training(4);
  context.groups = {{0, 2, 2, true}, {2, 4, 2, true}};
  std::vector<at::Tensor> directions;
  for (const NamedTensor& entry : graph.state())
    directions.push_back(entry.is_parameter() ? at::randn_like(*entry.tensor)
                                              : at::Tensor());
  std::vector<at::Tensor> weights;
  const auto loss = [&] {
    const auto heads = graph.forward(input, context);
    if (weights.empty())
      for (const at::Tensor& head : heads)
        weights.push_back(at::randn_like(head));
    return (heads[0].sigmoid() * weights[0]).sum() +
           (heads[1].sigmoid() * weights[1]).sum();
  };
  loss().backward();
  double derivative = 0;
  const NamedTensors state = graph.state();
  for (std::size_t i = 0; i < state.size(); ++i)
    if (state[i].is_parameter())
      derivative +=
          (state[i].tensor->grad() * directions[i]).sum().item<double>();

  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  const auto move = [&](double step) {
    for (std::size_t i = 0; i < state.size(); ++i)
      if (state[i].is_parameter()) state[i].tensor->add_(directions[i], step);
  };
  move(kStep);
  const double above = loss().item<double>();
  move(-2 * kStep);
  const double below = loss().item<double>();
  EXPECT_NEAR((above - below) / (2 * kStep), derivative,
              1e-5 * std::abs(derivative) + 1e-5);
}

// A rank may have no sample of a step; its backward must still visit every
// parameter, with gradients of zero.
TEST_P(LayerGraphPrecision, AnEmptyBatchGivesZeroGradients) {
  LayerGraph graph = tiny_graph(GetParam());
  StepContext context = training(0);
  context.groups.clear();
  const auto heads = graph.forward(images(0, GetParam()), context);
  EXPECT_EQ(heads[0].sizes(), at::IntArrayRef({0, 2, 8, 12, 7}));
  (heads[0].sum() + heads[1].sum()).backward();
  for (const NamedTensor& entry : graph.state()) {
    if (!entry.is_parameter()) continue;
    ASSERT_TRUE(entry.tensor->grad().defined()) << entry.name;
    EXPECT_EQ(entry.tensor->grad().abs().sum().item<double>(), 0) << entry.name;
  }
  const auto evaluated = graph.forward(images(0, GetParam()), StepContext{});
  EXPECT_EQ(graph.decode(evaluated).sizes(),
            at::IntArrayRef({0, 2 * (8 * 12 + 4 * 6), 7}));
}

// The head is a view of one [N, H, W, anchors * fields] block. This also shows
// that the maps before it are still channels-last.
TEST_P(LayerGraphPrecision, HeadsAreViewsOfChannelsLastMemory) {
  LayerGraph graph = tiny_graph(GetParam());
  for (const auto& head : graph.forward(images(2, GetParam()), training(2)))
    EXPECT_TRUE(head.permute({0, 2, 3, 1, 4}).is_contiguous());
  for (const NamedTensor& entry : graph.state())
    if (entry.tensor->dim() == 4) {
      EXPECT_TRUE(entry.tensor->is_contiguous(at::MemoryFormat::ChannelsLast))
          << entry.name;
    }
}

INSTANTIATE_TEST_SUITE_P(Types, LayerGraphPrecision,
                         testing::Values(at::kFloat, at::kDouble));

TEST(LayerGraph, ImagesOfAnotherShapeAreRefused) {
  LayerGraph graph = tiny_graph();
  EXPECT_THROW(graph.forward(at::zeros({1, 3, 64, 72}), StepContext{}),
               CheckFailure);
  EXPECT_THROW(graph.forward(at::zeros({1, 4, 64, 64}), StepContext{}),
               CheckFailure);
  EXPECT_THROW(
      graph.forward(at::zeros({1, 3, 64, 64}, at::kDouble), StepContext{}),
      CheckFailure);
}

TEST(LayerGraph, FreshWeightsFollowFromSeedAndNameAlone) {
  LayerGraph single = tiny_graph(at::kFloat, 5);
  LayerGraph same = tiny_graph(at::kFloat, 5);
  LayerGraph wide = tiny_graph(at::kDouble, 5);
  LayerGraph other = tiny_graph(at::kFloat, 6);
  layers::ModelTable shifted_table = tiny_table();  // layer 2 differs
  shifted_table.layers[2].args[0] = 128.0;
  LayerGraph shifted(shifted_table, 2, at::kFloat, 5);
  const NamedTensors state = single.state();
  for (std::size_t i = 0; i < state.size(); ++i) {
    const at::Tensor& tensor = *state[i].tensor;
    EXPECT_TRUE(at::equal(tensor, *same.state()[i].tensor));
    if (state[i].name.find("anchors") == std::string::npos) {
      EXPECT_TRUE(at::equal(tensor.to(at::kDouble),
                            wide.state()[i].tensor->to(at::kDouble)))
          << state[i].name;
    }
    if (state[i].role != TensorRole::kConvolutionWeight) continue;
    EXPECT_FALSE(at::equal(tensor, *other.state()[i].tensor));
    for (const NamedTensor& entry : shifted.state())
      if (entry.name == state[i].name &&
          entry.tensor->sizes() == tensor.sizes()) {
        EXPECT_TRUE(at::equal(tensor, *entry.tensor)) << entry.name;
      }
  }
}

TEST(LayerGraph, FreshConvolutionsAreKaimingUniform) {
  LayerGraph graph(layers::load_model_table("yolov5n"), 80, at::kFloat, 0);
  for (const NamedTensor& entry : graph.state()) {
    if (entry.role != TensorRole::kConvolutionWeight ||
        entry.tensor->numel() < 10000)
      continue;
    const at::Tensor weight = entry.tensor->detach();
    const auto fan_in = static_cast<double>(weight[0].numel());
    const double bound = 1 / std::sqrt(fan_in);
    EXPECT_LE(weight.abs().max().item<double>(), bound * (1 + 1e-6));
    EXPECT_NEAR(weight.std().item<double>(), bound / std::sqrt(3.0),
                0.02 * bound)
        << entry.name;
    EXPECT_NEAR(weight.mean().item<double>(), 0, 0.03 * bound) << entry.name;
  }
}

TEST(LayerGraph, FrozenLayersGetNoGradient) {
  LayerGraph graph = tiny_graph();
  graph.freeze(3);
  const auto heads = graph.forward(images(2, at::kFloat), training(2));
  (heads[0].sum() + heads[1].sum()).backward();
  for (const NamedTensor& entry : graph.state()) {
    const bool frozen = entry.name < "model.3";
    EXPECT_EQ(entry.tensor->requires_grad(), entry.is_parameter() && !frozen);
    EXPECT_EQ(entry.tensor->grad().defined(), entry.is_parameter() && !frozen)
        << entry.name;
  }
  graph.freeze(0);
  EXPECT_TRUE(graph.state()[0].tensor->requires_grad());
  graph.freeze(graph.num_layers());
  EXPECT_FALSE(graph.state().back().tensor->requires_grad());
  EXPECT_THROW(graph.freeze(10), Error);
  EXPECT_THROW(graph.freeze(-1), Error);
}

TEST(LayerGraph, StatisticsHaveTheirSlices) {
  LayerGraph graph = tiny_graph();
  int64_t offset = 0;
  for (const LayerGraph::BatchNorm& layer : graph.batch_norms()) {
    EXPECT_EQ(layer.sums_offset, offset);
    EXPECT_EQ(layer.running_mean->numel(), layer.channels);
    EXPECT_EQ(layer.running_var->numel(), layer.channels);
    offset += 2 * layer.channels;
  }
  EXPECT_EQ(graph.batch_norm_sums_size(), offset);
}

}  // namespace
}  // namespace headroom::model
