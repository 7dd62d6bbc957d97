#include "configs/layers/layer_cost.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "tests/support/refusal.h"

namespace headroom::layers {
namespace {

std::vector<LayerCost> costs_of(const std::string& cfg) {
  return layer_costs(load_model_table(cfg));
}

int64_t all_parameters(const std::vector<LayerCost>& layers) {
  return std::accumulate(layers.begin(), layers.end(), int64_t{0},
                         [](int64_t sum, const LayerCost& layer) {
                           return sum + layer.parameters;
                         });
}

double all_multiply_adds(const std::vector<LayerCost>& layers) {
  return std::accumulate(layers.begin(), layers.end(), 0.0,
                         [](double sum, const LayerCost& layer) {
                           return sum + layer.multiply_adds_per_pixel;
                         });
}

// The refusal of a table: layer 0 is a convolution of stride 1, and `layers`
// follow.
std::string refusal(const std::string& layers) {
  return testing::refusal_of([&] {
    layer_costs(
        parse_model_table("nc: 2\ndepth_multiple: 1\nwidth_multiple: 1\n"
                          "anchors: [[1, 1]]\n"
                          "backbone: [[-1, 1, Conv, [8]]]\nhead: [" +
                              layers + "]\n",
                          "m.yaml"));
  });
}

TEST(LayerCost, ParametersAreThoseOfThePublishedModels) {
  const std::map<std::string, int64_t> published = {
      {"yolov5n", 1'872'157},
      {"yolov5s", 7'235'389},
      {"yolov5m", 21'190'557},
      {"yolov5l", 46'563'709},
      {"yolov5x", 86'749'405},
      {"yolov5n6", 3'246'940},
      {"yolov5s6", 12'626'620},
      {"yolov5m6", 35'731'932},
      {"yolov5l6", 76'770'172},
      {"yolov5x6", 140'794'780},
      // Numbers that a separate program counted from the models' tables.
      {"yolov5s-ghost", 3'897'605},
      {"yolov5s-mobilenetv3", 3'971'965},
      {"yolov5s-p2", 7'394'684},
      {"yolov5s-p7", 24'183'227},
      {"yolov5s-shufflenetv2", 4'417'209}};
  for (const auto& [name, parameters] : published) {
    EXPECT_EQ(all_parameters(costs_of(name)), parameters) << name;
  }
}

// The counts of torchvision's mobilenet_v3_small and shufflenet_v2_x1_0, both
// without their last convolution and classifier, and the latter also without
// its first convolution.
TEST(LayerCost, ParametersOfBackbones) {
  const auto parameters = [](const std::string& model, size_t begin,
                             size_t end) {
    const std::vector<LayerCost> layers = costs_of(model);
    int64_t sum = 0;
    for (size_t layer = begin; layer < end; ++layer)
      sum += layers[layer].parameters;
    return sum;
  };
  EXPECT_EQ(parameters("yolov5s-mobilenetv3", 0, 12), 927'008 - 56'448);
  EXPECT_EQ(parameters("yolov5s-shufflenetv2", 2, 8),
            2'278'604 - 696 - 477'184 - 1'025'000);
}

TEST(LayerCost, ParametersOfEachLayerOfYolov5l) {
  const std::map<size_t, int64_t> published = {
      {0, 7'040},      {1, 73'984},     {2, 156'928},   {3, 295'424},
      {4, 1'118'208},  {5, 1'180'672},  {6, 6'433'792}, {7, 4'720'640},
      {8, 9'971'712},  {9, 2'624'512},  {10, 525'312},  {11, 0},
      {12, 0},         {13, 2'757'632}, {14, 131'584},  {15, 0},
      {16, 0},         {17, 690'688},   {18, 590'336},  {19, 0},
      {20, 2'495'488}, {21, 2'360'320}, {22, 0},        {23, 9'971'712},
      {24, 457'725}};
  const std::vector<LayerCost> layers = costs_of("yolov5l");
  ASSERT_EQ(layers.size(), published.size());
  for (const auto& [layer, parameters] : published) {
    EXPECT_EQ(layers[layer].parameters, parameters) << layer;
  }
}

// Only convolutions are counted, as two operations per multiply-add, at 640 x
// 640 pixels.
TEST(LayerCost, MultiplyAddsAreThoseOfThePublishedModels) {
  const std::map<std::string, double> published = {
      {"yolov5n", 4.5},   {"yolov5s", 16.5},  {"yolov5m", 49.0},
      {"yolov5l", 109.1}, {"yolov5x", 205.7}, {"yolov5n6", 4.6},
      {"yolov5s6", 16.8}, {"yolov5x6", 209.8}};
  for (const auto& [name, gigaflops] : published) {
    const double counted =
        2 * all_multiply_adds(costs_of(name)) * 640 * 640 / 1e9;
    EXPECT_LE(counted, gigaflops + 0.05) << name;
    EXPECT_GE(counted, gigaflops - 0.35) << name;
  }
}

TEST(LayerCost, InputsChannelsAndStridesOfYolov5n) {
  const std::vector<LayerCost> layers = costs_of("yolov5n");
  EXPECT_EQ(layers[0].inputs, std::vector<int>{-1});
  EXPECT_EQ(layers[12].inputs, (std::vector<int>{11, 6}));
  EXPECT_EQ(layers[24].inputs, (std::vector<int>{17, 20, 23}));
  EXPECT_EQ(layers[0].channels, 16);
  EXPECT_EQ(layers[12].channels, 128 + 128);
  EXPECT_EQ(layers[24].channels, 3 * 255);
  EXPECT_EQ(layers[0].stride, 2);
  EXPECT_EQ(layers[9].stride, 32);
  EXPECT_EQ(layers[17].stride, 8);
  EXPECT_EQ(largest_stride(layers), 32);
  EXPECT_EQ(largest_stride(costs_of("yolov5n6")), 64);
}

// By hand, per pixel: 16 channels at stride 2; C3 of 32 channels at stride 4
// with one bottleneck; SPPF 256 -> 256 at stride 32; three heads.
TEST(LayerCost, KeptElementsByHand) {
  const std::vector<LayerCost> layers = costs_of("yolov5n");
  EXPECT_EQ(layers[0].kept_elements_per_pixel, 2 * 16 / 4.0);
  EXPECT_EQ(layers[2].kept_elements_per_pixel, (4 * 32 + 2 * 32) / 16.0);
  EXPECT_EQ(layers[9].kept_elements_per_pixel, (8 * 128 + 2 * 256) / 1024.0);
  EXPECT_EQ(layers[11].kept_elements_per_pixel, 128 / 256.0);
  EXPECT_EQ(layers[24].kept_elements_per_pixel,
            255 / 64.0 + 255 / 256.0 + 255 / 1024.0);
}

TEST(LayerCost, UncountableLayersAreRefusedByPlace) {
  EXPECT_EQ(
      refusal("[-1, 1, Ghost, [8]]"),
      "[model] m.yaml:6:8: layer 1: unknown module Ghost: use one of "
      "Detect, Bottleneck, C2f, C3, C3Ghost, Concat, Conv, DWConv, Focus, "
      "GhostConv, InvertedResidual, SPP, SPPF, ShuffleNetV2, "
      "SqueezeExcitation, nn.ConvTranspose2d, nn.Upsample");
  EXPECT_EQ(refusal("[-1, 1, Conv, [16384]], [[-1, -1], 1, Concat, [1]]"),
            "[model] m.yaml:6:32: layer 2: Concat joins maps to 32768 or more "
            "channels: at most 16384 are supported");
  EXPECT_EQ(refusal("[-1, 1, Conv, []]"),
            "[model] m.yaml:6:8: layer 1: Conv has 0 arguments: write "
            "[channels, kernel, stride, padding, groups]");
  EXPECT_EQ(refusal("[-1, 1, Conv, [wide]]"),
            "[model] m.yaml:6:8: layer 1: argument 1 of Conv is not a whole "
            "number from 1 to 16384: correct it");
  EXPECT_EQ(
      refusal("[3, 1, Conv, [8]]"),
      "[model] m.yaml:6:8: layer 1: input 3 is not an earlier layer: use -1 "
      "to -1, or 0 to 0");
  EXPECT_EQ(
      refusal("[-1, 1, Conv, [8, 3, 2]], [[-1, 0], 1, Concat, [1]]"),
      "[model] m.yaml:6:34: layer 2: Concat joins maps of stride 2 and 1: "
      "take maps of one stride");
  EXPECT_EQ(
      refusal("[-1, 1, nn.Upsample, [None, 2, nearest]]"),
      "[model] m.yaml:6:8: layer 1: a map of stride 1 cannot be upsampled "
      "by 2: upsample maps of an even stride");
  EXPECT_EQ(refusal("[[0, 0], 1, Detect, [nc, anchors]]"),
            "[model] m.yaml:6:8: layer 1: Detect has 2 levels but there are "
            "anchors for 1: give one list of anchors per level");
}

}  // namespace
}  // namespace headroom::layers
