// Tests model tables, valid and invalid.
#include "worker/model/layer_factory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "tests/worker/model/tiny_table.h"
#include "worker/model/layer_graph.h"

namespace headroom::model {
namespace {

using testing::HasSubstr;

std::string complaint_of(const layers::ModelTable& table,
                         int64_t num_classes = 2) {
  try {
    LayerGraph graph(table, num_classes, at::kFloat, 0);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LayerFactory, ScalesChannelsAndRepeats) {
  LayerGraph graph(tiny_table(), 2, at::kFloat, 0);
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
  EXPECT_EQ(graph.num_layers(), 9);
}

// This rule is kept although it is surprising, because published models rely on
// it.
TEST(LayerFactory, AChannelCountEqualToTheHeadsIsNotScaled) {
  layers::ModelTable table = tiny_table();
  table.layers[0].args[0] = 14.0;
  LayerGraph graph(table, 2, at::kFloat, 0);
  EXPECT_EQ(graph.state()[0].tensor->size(0), 14);
  LayerGraph other(table, 3, at::kFloat, 0);
  EXPECT_EQ(other.state()[0].tensor->size(0), 8);
}

TEST(LayerFactory, RepeatsRoundHalvesToEven) {
  layers::ModelTable table = tiny_table();
  table.depth_multiple = 0.5;
  table.layers[2].repeats = 5;  // 2.5
  table.layers[7].repeats = 7;  // 3.5
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

TEST(LayerFactory, AnchorsFollowTheStrides) {
  layers::ModelTable table = tiny_table();
  std::swap(table.anchors[0], table.anchors[1]);
  LayerGraph graph(table, 2, at::kFloat, 0);
  EXPECT_EQ(graph.levels()[0].stride, 8);
  EXPECT_EQ(graph.levels()[0].anchors[0], std::make_pair(10.0, 13.0));
}

TEST(LayerFactory, WrongTablesAreRefusedByPlace) {
  const struct {
    std::function<void(layers::ModelTable&)> change;
    const char* complaint;
  } kCases[] = {
      {[](layers::ModelTable& t) { t.layers[2].module = "C9"; },
       "tiny.yaml:12:5: layer 2: unknown module C9"},
      {[](layers::ModelTable& t) { t.layers[2].from = {2}; }, "tiny.yaml:12:5"},
      {[](layers::ModelTable& t) { t.layers[2].from = {7}; },
       "not an earlier layer"},
      {[](layers::ModelTable& t) { t.layers[2].from = {-9}; },
       "not an earlier layer"},
      {[](layers::ModelTable& t) { t.layers[1].from = {-2}; },
       "not an earlier layer"},
      {[](layers::ModelTable& t) { t.layers[0].from = {0}; },
       "not an earlier layer"},
      {[](layers::ModelTable& t) { t.layers[2].from = {}; },
       "there is no input"},
      {[](layers::ModelTable& t) {
         t.layers[2].from = {-1, 0};
       },
       "takes one input"},
      {[](layers::ModelTable& t) {
         t.layers[6].from = {-1, 4};
       },
       "stride 8 and 16"},
      {[](layers::ModelTable& t) { t.layers[6].args = {0.0}; },
       "channels only"},

      {[](layers::ModelTable& t) { t.layers[0].args = {}; }, "has 0 arguments"},
      {[](layers::ModelTable& t) { t.layers[0].args[0] = 0.0; },
       "argument 1 of Conv"},
      {[](layers::ModelTable& t) { t.layers[0].args[0] = 1e12; },
       "argument 1 of Conv"},
      {[](layers::ModelTable& t) { t.layers[0].args[0] = 0.5; },
       "argument 1 of Conv"},
      {[](layers::ModelTable& t) { t.layers[0].args[0] = std::string("big"); },
       "argument 1 of Conv"},
      {[](layers::ModelTable& t) { t.layers[1].args[1] = 4.0; }, "padding"},
      {[](layers::ModelTable& t) { t.layers[1].repeats = 2; },
       "Conv is not repeated"},
      {[](layers::ModelTable& t) { t.layers[2].repeats = 100000; },
       "repeats times"},
      {[](layers::ModelTable& t) { t.layers[2].args.emplace_back(1.0); },
       "not a word"},
      {[](layers::ModelTable& t) { t.layers[4].args[1] = 4.0; }, "is even"},
      {[](layers::ModelTable& t) { t.layers[5].args[1] = 3.0; },
       "upsampling by 2"},
      {[](layers::ModelTable& t) {
         t.layers[5].args[2] = std::string("bilinear");
       },
       "upsampling by 2"},
      {[](layers::ModelTable& t) { t.layers[5].from = {1}; }, "tiny.yaml:16"},
      {[](layers::ModelTable& t) {
         t.layers[8].args = {80.0, std::string("anchors")};
       },
       "argument 1 of Detect"},
      {[](layers::ModelTable& t) { t.layers[8].from = {7}; },
       "1 levels but there are anchors for 2"},
      {[](layers::ModelTable& t) { t.anchors[1].pop_back(); },
       "2 and 1 anchors"},
      {[](layers::ModelTable& t) { t.layers.pop_back(); }, "is Detect"},
      {[](layers::ModelTable& t) { t.layers.push_back(t.layers[1]); },
       "is Detect"},
      {[](layers::ModelTable& t) { t.layers.clear(); }, "there are no layers"},
      {[](layers::ModelTable& t) { t.layers[7].from = {5}; },
       "tiny.yaml:16:5: layer 6: no later layer reads"},
      {[](layers::ModelTable& t) { t.width_multiple = 1e9; }, "width_multiple"},
      {[](layers::ModelTable& t) { t.input_channels = 0; }, "ch is 0"},
      {[](layers::ModelTable& t) { t.channel_multiple = 0; },
       "channel_multiple is 0"},
  };
  EXPECT_EQ(complaint_of(tiny_table()), "");
  for (const auto& test : kCases) {
    layers::ModelTable table = tiny_table();
    test.change(table);
    EXPECT_THAT(complaint_of(table), HasSubstr(test.complaint));
  }
  EXPECT_THAT(complaint_of(tiny_table(), 0), HasSubstr("0 classes"));
}

}  // namespace
}  // namespace headroom::model
