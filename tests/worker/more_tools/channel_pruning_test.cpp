// Removing constant channels changes nothing; the remaining table builds the
// same network, and its costs are those of the network.
#include "worker/more_tools/channel_pruning.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "tests/support/error_text.h"
#include "tests/support/parity.h"
#include "tests/worker/model/tiny_table.h"

namespace headroom::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kClasses = 3;

// Sets random scales, biases and statistics.
void fill_lively(model::LayerGraph& model) {
  at::manual_seed(7);
  fill_model(model.state());
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.name.ends_with("bn.weight")) {
      entry.tensor->copy_(at::rand(entry.tensor->sizes(), at::kDouble) + 0.5);
    }
    if (entry.name.ends_with("bn.bias") ||
        entry.name.ends_with("running_mean")) {
      entry.tensor->copy_(0.3 * at::randn(entry.tensor->sizes(), at::kDouble));
    }
  }
}

at::Tensor images() {
  return at::rand({2, 3, 64, 128}, at::kDouble)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

double difference(model::LayerGraph& a, model::LayerGraph& b,
                  const at::Tensor& x) {
  const auto ours = a.forward(x, model::StepContext());
  const auto theirs = b.forward(x, model::StepContext());
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    worst = std::max(worst, (ours[i] - theirs[i]).abs().max().item<double>());
  }
  return worst;
}

// The number of channels that all convolutions with a batch norm write.
int64_t channels_of(model::LayerGraph& model) {
  int64_t channels = 0;
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.name.ends_with("bn.weight")) channels += entry.tensor->size(0);
  }
  return channels;
}

// Makes every third channel constant, with a scale of 0 and this bias. All
// layers that write tied channels get the same indices. Only in the first
// convolution of a C3Ghost, the two halves are tied to each other.
void silence(const layers::ModelTable& table, model::LayerGraph& model,
             double bias) {
  std::set<std::string> halved;
  for (size_t i = 0; i < table.layers.size(); ++i) {
    if (table.layers[i].module != "C3Ghost") continue;
    halved.insert("model." + std::to_string(i) + ".cv1.bn.");
  }
  for (const model::NamedTensor& entry : model.state()) {
    const bool is_bias = entry.name.ends_with("bn.bias");
    if (!is_bias && !entry.name.ends_with("bn.weight")) continue;
    const int64_t size = entry.tensor->size(0);
    const std::string norm = entry.name.substr(0, entry.name.rfind('.') + 1);
    const int64_t period = halved.count(norm) == 1 ? size / 2 : size;
    for (int64_t channel = 0; channel < size; ++channel) {
      if (channel % period % 3 != 1) continue;
      entry.tensor->select(0, channel).fill_(is_bias ? bias : 0);
    }
  }
}

// The tiny model with another module for its stem. Pruning follows the layers'
// operations, not the names of modules: a Focus is a convolution of the images,
// and so is a DWConv of three channels to eight.
layers::ModelTable table_with_stem(const std::string& module) {
  layers::ModelTable table = model::tiny_table();
  table.layers[0].module = module;
  table.layers[0].args = {32.0, 3.0};
  if (module == "DWConv") table.layers[0].args.emplace_back(2.0);
  return table;
}

// Every module whose channels pruning follows, except those of the tiny model.
layers::ModelTable table_of_many() {
  layers::ModelTable table = model::tiny_table();
  using model::table_layer;
  const std::string none = "None", no = "False";
  table.layers = {
      table_layer(10, {-1}, 1, "Focus", {32.0, 3.0}),
      table_layer(11, {-1}, 1, "Conv", {64.0, 3.0, 2.0}),
      table_layer(12, {-1}, 6, "Bottleneck", {64.0}),
      table_layer(13, {-1}, 1, "GhostConv", {128.0, 3.0, 2.0}),
      table_layer(14, {-1}, 6, "C3Ghost", {128.0}),
      table_layer(15, {-1}, 1, "InvertedResidual",
                  {128.0, 256.0, 3.0, 1.0, no, std::string("RE")}),
      table_layer(16, {-1}, 1, "DWConv", {128.0, 3.0, 2.0}),
      table_layer(17, {-1}, 1, "Conv", {128.0, 3.0, 1.0, none, 32.0}),
      table_layer(18, {-1}, 1, "SPP", {128.0}),
      table_layer(19, {-1}, 1, "Bottleneck", {192.0}),
      table_layer(20, {-1}, 1, "nn.Upsample",
                  {none, 2.0, std::string("nearest")}),
      table_layer(21, {-1, 5}, 1, "Concat", {1.0}),
      table_layer(22, {-1}, 3, "C3", {64.0, no}),
      table_layer(23, {12, 9}, 1, "Detect",
                  {std::string("nc"), std::string("anchors")}),
  };
  return table;
}

class Pruning : public testing::TestWithParam<std::string> {
 protected:
  Pruning() {
    at::set_num_threads(1);
    const std::string& name = GetParam();
    const bool is_stem = name == "Focus" || name == "DWConv";
    table_ = name == "tiny"   ? model::tiny_table()
             : name == "many" ? table_of_many()
             : is_stem        ? table_with_stem(name)
                              : layers::load_model_table(name);
    // Any number of channels may be removed.
    table_.channel_multiple = 1;
  }
  layers::ModelTable table_;
};

TEST_P(Pruning, RemovingConstantChannelsChangesNothing) {
  const at::NoGradGuard no_grad;
  model::LayerGraph model(table_, kClasses, at::kDouble, 0);
  fill_lively(model);
  silence(table_, model, 0);
  const PrunedModel pruned = prune_channels(table_, model, 0.3);
  EXPECT_LE(pruned.channels_after, pruned.channels_before * 7 / 10);
  EXPECT_LT(pruned.parameters_after, pruned.parameters_before * 6 / 10);
  EXPECT_LT(difference(model, *pruned.model, images()), 1e-12);
}

// The text of the pruned table is a model file. The model that it builds takes
// the state, and the layers' costs are those of the network.
TEST_P(Pruning, TheTableBuildsTheSameNetwork) {
  const at::NoGradGuard no_grad;
  model::LayerGraph model(table_, kClasses, at::kDouble, 0);
  fill_lively(model);
  const PrunedModel pruned = prune_channels(table_, model, 0.4);
  const layers::ModelTable read = layers::parse_model_table(
      layers::model_table_text(pruned.table), "pruned.yaml");
  model::LayerGraph again(read, kClasses, at::kDouble, 5);
  const model::NamedTensors from = pruned.model->state(), to = again.state();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].name, to[i].name);
    to[i].tensor->copy_(*from[i].tensor);
  }
  EXPECT_EQ(difference(*pruned.model, again, images()), 0);
  int64_t parameters = 0;
  for (const layers::LayerCost& layer : layers::layer_costs(read))
    parameters += layer.parameters;
  EXPECT_EQ(parameters, pruned.parameters_after);
}

INSTANTIATE_TEST_SUITE_P(Models, Pruning,
                         testing::Values("tiny", "many", "Focus", "DWConv",
                                         "yolov5n", "yolov5n6",
                                         "yolov5s-ghost"));

// The layers that read a removed channel take over its constant. This is exact
// in 1x1 convolutions. In other convolutions it is exact away from the edge, so
// that only cells near the edge change.
class Activations : public testing::TestWithParam<layers::ActivationFunction> {
};

TEST_P(Activations, ConstantsMoveIntoTheirReaders) {
  const at::NoGradGuard no_grad;
  layers::ModelTable table = model::tiny_table();
  table.channel_multiple = 1;
  table.activation = GetParam();
  // Only 1x1 convolutions read the constant channels.
  model::LayerGraph model(table, kClasses, at::kDouble, 0);
  fill_lively(model);
  const auto set = [&](const std::string& name, double value) {
    for (const model::NamedTensor& entry : model.state()) {
      if (entry.name == name) entry.tensor->slice(0, 0, 6).fill_(value);
    }
  };
  // Layer 4's output goes to Upsample, Concat, C3's 1x1, and a head.
  set("model.4.cv2.bn.weight", 0);
  set("model.4.cv2.bn.bias", 0.7);
  // The tied channels of layer 2 are read by 1x1 convolutions inside it, and by
  // cv3.
  for (const char* block : {"model.2.cv1.", "model.2.m.0.cv2."}) {
    set(std::string(block) + "bn.weight", 0);
    set(std::string(block) + "bn.bias", 0.4);
  }
  const double share = 10.0 / 1000;
  const PrunedModel pruned = prune_channels(table, model, share);
  EXPECT_LT(pruned.channels_after, pruned.channels_before);
  EXPECT_LT(difference(model, *pruned.model, images()), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(
    All, Activations,
    testing::Values(
        layers::ActivationFunction(), layers::kRelu,
        layers::ActivationFunction{layers::ActivationKind::kLeaky, 0.1},
        layers::ActivationFunction{layers::ActivationKind::kHardswish},
        layers::ActivationFunction{layers::ActivationKind::kMish}));

std::string refusal(const layers::ModelTable& table, double share) {
  model::LayerGraph model(table, kClasses, at::kFloat, 0);
  return error_text([&] { prune_channels(table, model, share); });
}

TEST(ChannelPruning, LayersThatTieChannelsAreRefusedWithTheReason) {
  const auto of_shipped = [](const char* name) {
    return refusal(layers::load_model_table(name), 0.3);
  };
  EXPECT_THAT(of_shipped("yolov5s-mobilenetv3"),
              HasSubstr("yolov5s-mobilenetv3.yaml:17:5: InvertedResidual: "
                        "squeeze and excitation scales each channel"));
  EXPECT_THAT(of_shipped("yolov5s-shufflenetv2"),
              HasSubstr("yolov5s-shufflenetv2.yaml:20:5: ShuffleNetV2: "
                        "it needs two equal halves"));
  const auto of_second_layer =
      [](const std::string& module,
         std::vector<layers::ModelTable::Argument> args) {
        layers::ModelTable table = model::tiny_table();
        table.layers[2].module = module;
        table.layers[2].repeats = 1;
        table.layers[2].args = std::move(args);
        return refusal(table, 0.3);
      };
  EXPECT_THAT(of_second_layer("Conv", {64.0, 3.0, 1.0, 1.0, 4.0}),
              HasSubstr("tiny.yaml:12:5: Conv: its convolution takes 16 "
                        "channels to 16 in 4 groups, and pruning follows only "
                        "groups of one channel in and one out"));
  layers::ModelTable grows = model::tiny_table();
  grows.layers[5] =
      model::table_layer(15, {-1}, 1, "nn.ConvTranspose2d", {128.0, 2.0, 2.0});
  EXPECT_THAT(refusal(grows, 0.3),
              HasSubstr("tiny.yaml:15:5: nn.ConvTranspose2d: a transposed "
                        "convolution has no batch norm"));
  layers::ModelTable of_images = model::tiny_table();
  of_images.layers[0].module = "DWConv";
  of_images.layers[0].args = {12.0, 3.0, 4.0};
  of_images.channel_multiple = 3;
  EXPECT_THAT(refusal(of_images, 0.3),
              HasSubstr("its channels are tied to those of the images"));
}

// Layer 1 makes 16 channels. Layer 2 makes 32 channels, of which half are
// constant.
class EqualNumbers : public testing::Test {
 protected:
  EqualNumbers() {
    table_ = model::tiny_table();
    table_.channel_multiple = 1;
    table_.layers[2].module = "Bottleneck";
    table_.layers[2].args = {128.0};
  }
  // Removes the 16 constant channels and no others. `num_channels` is the
  // number of channels of the model.
  PrunedModel prune(model::LayerGraph& model, int64_t num_channels) const {
    fill_lively(model);
    for (const model::NamedTensor& entry : model.state()) {
      if (entry.name.starts_with("model.2.") && entry.is_parameter() &&
          entry.tensor->dim() == 1 && entry.tensor->size(0) == 32) {
        entry.tensor->slice(0, 0, 16).fill_(0);
      }
    }
    return prune_channels(table_, model,
                          15.5 / static_cast<double>(num_channels));
  }
  layers::ModelTable table_;
};

TEST_F(EqualNumbers, ABottleneckThatAddedNothingAddsNothing) {
  const at::NoGradGuard no_grad;
  table_.layers[2].repeats = 1;
  model::LayerGraph model(table_, kClasses, at::kDouble, 0);
  const PrunedModel pruned = prune(model, channels_of(model));
  EXPECT_EQ(std::get<double>(pruned.table.layers[2].args.at(0)), 16);
  EXPECT_EQ(pruned.channels_before - pruned.channels_after, 16);
  EXPECT_LT(difference(model, *pruned.model, images()), 1e-12);
}

// The first of two bottlenecks adds nothing, the second adds its input. With
// equal numbers of channels, a line of a table cannot express this.
TEST_F(EqualNumbers, BottlenecksThatWouldBeginToAddAreRefused) {
  const at::NoGradGuard no_grad;
  table_.layers[2].repeats = 6;
  model::LayerGraph model(table_, kClasses, at::kDouble, 0);
  const int64_t shared = 32;  // channels that both bottlenecks write
  EXPECT_THAT([&] { prune(model, channels_of(model) - shared); },
              ThrowsMessage<Error>(HasSubstr(
                  "tiny.yaml:12:5: Bottleneck from 16 to 32 channels would "
                  "become another layer with 16 and 16: what it adds")));
}

// 3 and 32 channels have no common divisor, 3 and 24 have one.
TEST(ChannelPruning, ADWConvThatWouldGetGroupsIsRefused) {
  const at::NoGradGuard no_grad;
  layers::ModelTable table = model::tiny_table();
  table.layers[0].module = "DWConv";
  table.layers[0].args = {128.0, 3.0, 4.0};
  model::LayerGraph model(table, kClasses, at::kDouble, 0);
  fill_lively(model);
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.name == "model.0.bn.weight")
      entry.tensor->slice(0, 0, 8).fill_(0);
  }
  EXPECT_THAT(
      [&] { prune_channels(table, model, 0.001); },
      ThrowsMessage<Error>(HasSubstr(
          "tiny.yaml:10:5: DWConv from 3 to 32 channels would become "
          "another layer with 3 and 24: what it adds, and its groups")));
}

TEST(ChannelPruning, TiedChannelsGoTogetherOrStay) {
  const at::NoGradGuard no_grad;
  layers::ModelTable table = model::tiny_table();
  table.channel_multiple = 1;
  model::LayerGraph model(table, kClasses, at::kDouble, 0);
  fill_lively(model);
  // Two layers write this channel. If it is constant in only one of them, it
  // must not be removed.
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.name == "model.2.cv1.bn.weight") entry.tensor->fill_(0);
  }
  const PrunedModel pruned = prune_channels(table, model, 0.2);
  const auto widths =
      std::get<std::vector<double>>(pruned.table.layers[2].args.at(2));
  ASSERT_EQ(widths.size(), 4u);
  EXPECT_EQ(widths[0], widths[3]) << "cv1 and the bottleneck's cv2";
  EXPECT_GT(widths[0], 2);
}

TEST(ChannelPruning, WidthsAreMultiplesAndAQuarterStays) {
  const at::NoGradGuard no_grad;
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  model::LayerGraph model(table, kClasses, at::kFloat, 0);
  const PrunedModel pruned = prune_channels(table, model, 0.5);
  for (const model::NamedTensor& entry : pruned.model->state()) {
    if (!entry.name.ends_with("bn.weight")) continue;
    EXPECT_EQ(entry.tensor->size(0) % 8, 0) << entry.name;
  }
  EXPECT_LE(pruned.channels_after * 2, pruned.channels_before);
  EXPECT_THAT([&] { prune_channels(table, model, 0.9); },
              ThrowsMessage<Error>(HasSubstr("channels should go, but only")));
}

}  // namespace
}  // namespace headroom::tools
