// Tables, right and wrong; empty batches; memory layout; freezing.
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "configs/model_table.h"
#include "parallel/base/check.h"
#include "worker/model/layer_graph.h"

namespace headroom {
namespace {

using testing::HasSubstr;

ModelTable::Row row(int line, std::vector<int> from, int repeats,
                    std::string module,
                    std::vector<ModelTable::Argument> args) {
  ModelTable::Row result;
  result.from = std::move(from);
  result.repeats = repeats;
  result.module = std::move(module);
  result.args = std::move(args);
  result.place = {"tiny.yaml", line, 5};
  return result;
}

// Two levels, of strides 8 and 16; every kind of row.
ModelTable tiny_table() {
  ModelTable table;
  table.name = "tiny";
  table.num_classes = 2;
  table.width_multiple = 0.25;
  table.depth_multiple = 0.33;
  table.anchors = {{{10, 13}, {16, 30}}, {{30, 61}, {62, 45}}};
  const auto word = [](const char* text) { return std::string(text); };
  table.rows = {
      row(10, {-1}, 1, "Conv", {32.0, 6.0, 4.0, 1.0}),
      row(11, {-1}, 1, "Conv", {64.0, 3.0, 2.0}),
      row(12, {-1}, 3, "C3", {64.0}),
      row(13, {-1}, 1, "Conv", {128.0, 3.0, 2.0}),
      row(14, {-1}, 1, "SPPF", {128.0, 5.0}),
      row(15, {-1}, 1, "nn.Upsample", {word("None"), 2.0, word("nearest")}),
      row(16, {-1, 2}, 1, "Concat", {1.0}),
      row(17, {-1}, 3, "C3", {64.0, word("False")}),
      row(18, {7, 4}, 1, "Detect", {word("nc"), word("anchors")}),
  };
  return table;
}

LayerGraph tiny_graph(at::ScalarType type = at::kFloat, uint64_t seed = 0) {
  return LayerGraph(tiny_table(), 2, type, seed);
}

std::string complaint_of(const ModelTable& table, int64_t num_classes = 2) {
  try {
    LayerGraph graph(table, num_classes, at::kFloat, 0);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
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

TEST(LayerGraph, ScalesChannelsAndRepeats) {
  LayerGraph graph = tiny_graph();
  std::vector<std::string> names;
  for (const NamedTensor& entry : graph.state())
    names.push_back(entry.name +
                    c10::str(" ", c10::IntArrayRef(entry.tensor->sizes())));
  EXPECT_THAT(names, testing::Contains("model.0.conv.weight [8, 3, 6, 6]"));
  EXPECT_THAT(names,
              testing::Contains("model.2.m.0.cv2.conv.weight [8, 8, 3, 3]"));
  EXPECT_THAT(names,
              testing::Not(testing::Contains(HasSubstr("model.2.m.1."))));
  EXPECT_THAT(names, testing::Contains("model.8.m.1.weight [14, 32, 1, 1]"));
  EXPECT_EQ(graph.max_stride(), 16);
  EXPECT_EQ(graph.num_rows(), 9);
}

// Kept although surprising, because published models rely on it.
TEST(LayerGraph, AChannelCountEqualToTheHeadsIsNotScaled) {
  ModelTable table = tiny_table();
  table.rows[0].args[0] = 14.0;
  LayerGraph graph(table, 2, at::kFloat, 0);
  EXPECT_EQ(graph.state()[0].tensor->size(0), 14);
  LayerGraph other(table, 3, at::kFloat, 0);
  EXPECT_EQ(other.state()[0].tensor->size(0), 8);
}

TEST(LayerGraph, RepeatsRoundHalvesToEven) {
  ModelTable table = tiny_table();
  table.depth_multiple = 0.5;
  table.rows[2].repeats = 5;  // 2.5
  table.rows[7].repeats = 7;  // 3.5
  LayerGraph graph(table, 2, at::kFloat, 0);
  int64_t shallow = 0;
  int64_t deep = 0;
  for (const LayerGraph::BatchNorm& layer : graph.batch_norms()) {
    shallow += layer.name.find("model.2.m.") == 0;
    deep += layer.name.find("model.7.m.") == 0;
  }
  EXPECT_EQ(shallow, 2 * 2);
  EXPECT_EQ(deep, 2 * 4);
}

TEST(LayerGraph, AnchorsFollowTheStrides) {
  ModelTable table = tiny_table();
  std::swap(table.anchors[0], table.anchors[1]);
  LayerGraph graph(table, 2, at::kFloat, 0);
  EXPECT_EQ(graph.levels()[0].stride, 8);
  EXPECT_EQ(graph.levels()[0].anchors[0], std::make_pair(10.0, 13.0));
}

TEST(LayerGraph, WrongTablesAreRefusedByPlace) {
  const struct {
    std::function<void(ModelTable&)> change;
    const char* complaint;
  } kCases[] = {
      {[](ModelTable& t) { t.rows[2].module = "C9"; },
       "tiny.yaml:12:5: row 2: unknown module C9"},
      {[](ModelTable& t) { t.rows[2].from = {2}; }, "tiny.yaml:12:5"},
      {[](ModelTable& t) { t.rows[2].from = {7}; }, "not an earlier row"},
      {[](ModelTable& t) { t.rows[2].from = {-9}; }, "not an earlier row"},
      {[](ModelTable& t) { t.rows[1].from = {-2}; }, "not an earlier row"},
      {[](ModelTable& t) { t.rows[0].from = {0}; }, "not an earlier row"},
      {[](ModelTable& t) { t.rows[2].from = {}; }, "there is no input"},
      {[](ModelTable& t) {
         t.rows[2].from = {-1, 0};
       },
       "takes one input"},
      {[](ModelTable& t) {
         t.rows[6].from = {-1, 4};
       },
       "stride 8 and 16"},
      {[](ModelTable& t) { t.rows[6].args = {0.0}; }, "channels only"},

      {[](ModelTable& t) { t.rows[0].args = {}; }, "has 0 arguments"},
      {[](ModelTable& t) { t.rows[0].args[0] = 0.0; }, "argument 1 of Conv"},
      {[](ModelTable& t) { t.rows[0].args[0] = 1e12; }, "argument 1 of Conv"},
      {[](ModelTable& t) { t.rows[0].args[0] = 0.5; }, "argument 1 of Conv"},
      {[](ModelTable& t) { t.rows[0].args[0] = std::string("big"); },
       "argument 1 of Conv"},
      {[](ModelTable& t) { t.rows[1].args[1] = 4.0; }, "padding"},
      {[](ModelTable& t) { t.rows[1].repeats = 2; }, "Conv is not repeated"},
      {[](ModelTable& t) { t.rows[2].repeats = 100000; }, "repeats times"},
      {[](ModelTable& t) { t.rows[2].args.push_back(1.0); }, "not a word"},
      {[](ModelTable& t) { t.rows[4].args[1] = 4.0; }, "is even"},
      {[](ModelTable& t) { t.rows[5].args[1] = 3.0; }, "upsampling by 2"},
      {[](ModelTable& t) { t.rows[5].args[2] = std::string("bilinear"); },
       "upsampling by 2"},
      {[](ModelTable& t) { t.rows[5].from = {1}; }, "tiny.yaml:16"},
      {[](ModelTable& t) {
         t.rows[8].args = {80.0, std::string("anchors")};
       },
       "argument 1 of Detect"},
      {[](ModelTable& t) { t.rows[8].from = {7}; },
       "1 levels but there are anchors for 2"},
      {[](ModelTable& t) { t.anchors[1].pop_back(); }, "2 and 1 anchors"},
      {[](ModelTable& t) { t.rows.pop_back(); }, "is Detect"},
      {[](ModelTable& t) { t.rows.push_back(t.rows[1]); }, "is Detect"},
      {[](ModelTable& t) { t.rows.clear(); }, "there are no rows"},
      {[](ModelTable& t) { t.rows[7].from = {5}; },
       "tiny.yaml:16:5: row 6: no later row reads"},
      {[](ModelTable& t) { t.activation = "LeakyReLU"; }, "use SiLU"},
      {[](ModelTable& t) { t.width_multiple = 1e9; }, "width_multiple"},
      {[](ModelTable& t) { t.input_channels = 0; }, "ch is 0"},
      {[](ModelTable& t) { t.channel_multiple = 0; }, "channel_multiple is 0"},
  };
  EXPECT_EQ(complaint_of(tiny_table()), "");
  for (const auto& test : kCases) {
    ModelTable table = tiny_table();
    test.change(table);
    EXPECT_THAT(complaint_of(table), HasSubstr(test.complaint));
  }
  EXPECT_THAT(complaint_of(tiny_table(), 0), HasSubstr("0 classes"));
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

// The head is a view of one [N, H, W, anchors * fields] block, which also shows
// that the maps before it stayed channels-last.
TEST_P(LayerGraphPrecision, HeadsAreViewsOfChannelsLastMemory) {
  LayerGraph graph = tiny_graph(GetParam());
  for (const auto& head : graph.forward(images(2, GetParam()), training(2)))
    EXPECT_TRUE(head.permute({0, 2, 3, 1, 4}).is_contiguous());
  for (const NamedTensor& entry : graph.state())
    if (entry.tensor->dim() == 4)
      EXPECT_TRUE(entry.tensor->is_contiguous(at::MemoryFormat::ChannelsLast))
          << entry.name;
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
  ModelTable shifted_table = tiny_table();  // other rows before the last ones
  shifted_table.rows[2].args[0] = 128.0;
  LayerGraph shifted(shifted_table, 2, at::kFloat, 5);
  const NamedTensors state = single.state();
  for (std::size_t i = 0; i < state.size(); ++i) {
    const at::Tensor& tensor = *state[i].tensor;
    EXPECT_TRUE(at::equal(tensor, *same.state()[i].tensor));
    if (state[i].name.find("anchors") == std::string::npos)
      EXPECT_TRUE(at::equal(tensor.to(at::kDouble),
                            wide.state()[i].tensor->to(at::kDouble)))
          << state[i].name;
    if (state[i].role != TensorRole::kConvolutionWeight) continue;
    EXPECT_FALSE(at::equal(tensor, *other.state()[i].tensor));
    for (const NamedTensor& entry : shifted.state())
      if (entry.name == state[i].name &&
          entry.tensor->sizes() == tensor.sizes())
        EXPECT_TRUE(at::equal(tensor, *entry.tensor)) << entry.name;
  }
}

TEST(LayerGraph, FreshConvolutionsAreKaimingUniform) {
  LayerGraph graph(load_model_table("yolov5n"), 80, at::kFloat, 0);
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

TEST(LayerGraph, FrozenRowsGetNoGradient) {
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
  graph.freeze(graph.num_rows());
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
}  // namespace headroom
