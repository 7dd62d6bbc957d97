// Tests a graph that is cut into parts: which layers a part keeps, which layers
// it frees, and that the parts together compute the result of the whole graph.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "tests/worker/model/tiny_table.h"
#include "worker/model/layer.h"
#include "worker/model/layer_graph.h"

namespace headroom::model {
namespace {

using LayerRange = LayerGraph::LayerRange;
using LayerMaps = LayerGraph::LayerMaps;

constexpr int64_t kLayers = 9;

std::unique_ptr<LayerGraph> tiny_graph() {
  return std::make_unique<LayerGraph>(tiny_table(), 2, at::kDouble, 3);
}

std::unique_ptr<LayerGraph> tiny_part(int64_t begin, int64_t end) {
  auto graph = tiny_graph();
  graph->keep_layers({begin, end});
  return graph;
}

at::Tensor images() {
  return at::rand({2, 3, 64, 96}, at::kDouble)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

StepContext training(const LayerGraph& graph) {
  StepContext context;
  context.training = true;
  context.groups = {{0, 2, 2, true}};
  context.batch_norm_sums =
      at::zeros({graph.batch_norm_sums_size()}, at::kDouble);
  return context;
}

TEST(LayerGraphPart, LayersAndTheirMapsAreKnown) {
  const auto graph = tiny_graph();
  EXPECT_EQ(graph->inputs(),
            (std::vector<std::vector<int>>{
                {-1}, {0}, {1}, {2}, {3}, {4}, {5, 2}, {6}, {7, 4}}));
  const std::vector<layers::MapShape>& shapes = graph->map_shapes();
  ASSERT_EQ(shapes.size(), 9u);
  EXPECT_EQ(shapes[0].channels, 8);
  EXPECT_EQ(shapes[0].stride, 4);
  EXPECT_EQ(shapes[4].channels, 32);
  EXPECT_EQ(shapes[4].stride, 16);
  EXPECT_EQ(shapes[6].channels, 48);
  EXPECT_EQ(shapes[6].stride, 8);
  for (const NamedTensor& entry : graph->state())
    EXPECT_TRUE(
        entry.name.starts_with("model." + std::to_string(entry.layer) + "."))
        << entry.name;
  for (const LayerGraph::BatchNorm& norm : graph->batch_norms())
    EXPECT_TRUE(
        norm.name.starts_with("model." + std::to_string(norm.layer) + "."));
}

TEST(LayerGraphPart, StateOfPartsIsThatOfTheWhole) {
  const auto whole = tiny_graph();
  const NamedTensors all = whole->state();
  std::size_t next = 0, next_norm = 0;
  for (const LayerRange layers :
       {LayerRange{0, 2}, LayerRange{2, 7}, LayerRange{7, 9}}) {
    const auto part = tiny_part(layers.begin, layers.end);
    EXPECT_EQ(part->kept_layers(), layers);
    EXPECT_EQ(part->num_layers(), kLayers);
    for (const NamedTensor& entry : part->state()) {
      ASSERT_LT(next, all.size());
      EXPECT_EQ(entry.name, all[next].name);
      EXPECT_EQ(entry.layer, all[next].layer);
      EXPECT_TRUE(at::equal(*entry.tensor, *all[next].tensor));
      ++next;
    }
    int64_t offset = 0;
    for (const LayerGraph::BatchNorm& norm : part->batch_norms()) {
      EXPECT_EQ(norm.name, whole->batch_norms()[next_norm++].name);
      EXPECT_EQ(norm.sums_offset, offset);
      offset += 2 * norm.channels;
    }
    EXPECT_EQ(part->batch_norm_sums_size(), offset);
    EXPECT_EQ(part->num_classes(), 2);
    EXPECT_EQ(part->max_stride(), 16);
    ASSERT_EQ(part->levels().size(), 2u);
    EXPECT_EQ(part->levels()[1].stride, 16);
    EXPECT_EQ(part->levels()[1].anchors, whole->levels()[1].anchors);
  }
  EXPECT_EQ(next, all.size());
  EXPECT_EQ(next_norm, whole->batch_norms().size());
}

TEST(LayerGraphPart, DroppedLayersAreFreed) {
  const auto graph = tiny_graph();
  struct Watched {
    int64_t layer;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  };
  std::vector<Watched> watched;
  for (const NamedTensor& entry : graph->state())
    watched.push_back(
        {entry.layer, entry.tensor->storage().getWeakStorageImpl()});
  graph->keep_layers({2, 7});
  int num_freed = 0;
  for (const Watched& one : watched) {
    EXPECT_EQ(one.storage.expired(), one.layer < 2 || one.layer >= 7)
        << one.layer;
    num_freed += one.storage.expired() ? 1 : 0;
  }
  EXPECT_GT(num_freed, 0);
  EXPECT_LT(num_freed, static_cast<int>(watched.size()));
}

// The graph is cut at every layer, and the test passes on maps that skip
// layers. Heads, gradients and batch-norm sums are equal to the bit.
TEST(LayerGraphPart, TwoPartsComputeTheWhole) {
  const at::Tensor input = images();
  const auto whole = tiny_graph();
  const StepContext context = training(*whole);
  const std::vector<at::Tensor> heads = whole->forward(input, context);
  (heads[0].square().sum() + heads[1].square().sum()).backward();

  for (int64_t cut = 1; cut < kLayers; ++cut) {
    const auto front = tiny_part(0, cut);
    const auto back = tiny_part(cut, kLayers);
    std::vector<int> wanted;
    for (int64_t layer = 0; layer < cut; ++layer) {
      bool crosses = false;
      for (int64_t reader = cut; reader < kLayers; ++reader)
        for (const int from : front->inputs()[static_cast<size_t>(reader)])
          crosses |= from == layer;
      if (crosses) wanted.push_back(static_cast<int>(layer));
    }
    const StepContext front_context = training(*front);
    const StepContext back_context = training(*back);
    const std::vector<at::Tensor> maps =
        front->forward_layers({}, input, front_context, wanted);
    ASSERT_EQ(maps.size(), wanted.size());
    LayerMaps received;
    for (size_t i = 0; i < maps.size(); ++i) received[wanted[i]] = maps[i];
    const std::vector<at::Tensor> split =
        back->forward_layers(received, {}, back_context, {});
    ASSERT_EQ(split.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(split[i], heads[i]));
    (split[0].square().sum() + split[1].square().sum()).backward();

    NamedTensors parts = front->state();
    for (const NamedTensor& entry : back->state()) parts.push_back(entry);
    const NamedTensors all = whole->state();
    ASSERT_EQ(parts.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].is_parameter()) {
        EXPECT_TRUE(at::equal(parts[i].tensor->grad(), all[i].tensor->grad()))
            << "cut " << cut << ": " << all[i].name;
      }
    const int64_t front_size = front->batch_norm_sums_size();
    EXPECT_TRUE(at::equal(front_context.batch_norm_sums,
                          context.batch_norm_sums.narrow(0, 0, front_size)));
    EXPECT_TRUE(at::equal(back_context.batch_norm_sums,
                          context.batch_norm_sums.narrow(
                              0, front_size, back->batch_norm_sums_size())));
  }
}

// An executor runs every layer of the part, and gets the layer's number in the
// whole model.
class Recorder final : public LayerExecutor {
 public:
  std::vector<at::Tensor> run(int64_t index, Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const StepContext& context) override {
    layers.push_back(index);
    return layer.forward(inputs, context);
  }
  std::vector<int64_t> layers;
};

TEST(LayerGraphPart, LayersGoThroughTheExecutor) {
  const auto part = tiny_part(2, 5);
  Recorder recorder;
  StepContext context;
  context.runner = &recorder;
  const auto maps = part->forward_layers(
      {{1, at::rand({2, 16, 8, 12}, at::kDouble)
               .contiguous(at::MemoryFormat::ChannelsLast)}},
      {}, context, {4, 2});
  EXPECT_EQ(recorder.layers, (std::vector<int64_t>{2, 3, 4}));
  ASSERT_EQ(maps.size(), 2u);
  EXPECT_EQ(maps[0].sizes(), at::IntArrayRef({2, 32, 4, 6}));
  EXPECT_EQ(maps[1].sizes(), at::IntArrayRef({2, 16, 8, 12}));
}

// Map 2 is read by layers 3 and 6, map 3 by layer 4 alone.
class MapsAlive final : public LayerExecutor {
 public:
  std::vector<at::Tensor> run(int64_t index, Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const StepContext& context) override {
    if (index == 5) {
      map_2_at_5 = !maps.at(2).expired();
      map_3_at_5 = !maps.at(3).expired();
    }
    if (index == 7) map_2_at_7 = !maps.at(2).expired();
    std::vector<at::Tensor> outputs = layer.forward(inputs, context);
    maps.emplace(index, outputs.front().getIntrusivePtr());
    return outputs;
  }
  std::map<int64_t,
           c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>>
      maps;
  bool map_2_at_5 = false, map_3_at_5 = true, map_2_at_7 = true;
};

TEST(LayerGraphPart, MapsAreFreedAfterTheirLastReader) {
  const at::NoGradGuard no_grad;
  const auto part = tiny_part(2, 9);
  MapsAlive alive;
  StepContext context;
  context.runner = &alive;
  part->forward_layers({{1, at::rand({2, 16, 8, 12}, at::kDouble)
                                .contiguous(at::MemoryFormat::ChannelsLast)}},
                       {}, context, {});
  EXPECT_TRUE(alive.map_2_at_5);
  EXPECT_FALSE(alive.map_3_at_5);
  EXPECT_FALSE(alive.map_2_at_7);
}

TEST(LayerGraphPart, FreezingCountsLayersOfTheTable) {
  const auto part = tiny_part(2, 9);
  part->freeze(4);
  for (const NamedTensor& entry : part->state())
    EXPECT_EQ(entry.tensor->requires_grad(),
              entry.is_parameter() && entry.layer >= 4)
        << entry.name;
}

TEST(LayerGraphPart, WrongUseIsAProgrammersError) {
  const auto part = tiny_part(2, 5);
  const StepContext context;
  const at::Tensor map = at::rand({2, 16, 8, 12}, at::kDouble)
                             .contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_THROW(part->forward(images(), context), CheckFailure);
  EXPECT_THROW(part->decode({}), CheckFailure);
  EXPECT_THROW(part->forward_layers({}, {}, context, {4}), CheckFailure);
  EXPECT_THROW(part->forward_layers({{0, map}}, {}, context, {4}),
               CheckFailure);
  EXPECT_THROW(part->forward_layers({{1, map}}, {}, context, {5}),
               CheckFailure);
  EXPECT_THROW(part->keep_layers({1, 5}), CheckFailure);
  EXPECT_THROW(part->keep_layers({3, 3}), CheckFailure);
  const auto whole = tiny_graph();
  EXPECT_THROW(whole->forward_layers({}, images(), context, {7}), CheckFailure);
  EXPECT_THROW(whole->forward_layers({}, {}, context, {}), CheckFailure);
}

}  // namespace
}  // namespace headroom::model
