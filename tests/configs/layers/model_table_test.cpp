#include "configs/layers/model_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "configs/yaml/shipped_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::layers {
namespace {

const std::string kSmall =
    "nc: 3\n"
    "depth_multiple: 0.5\n"
    "width_multiple: 1.0\n"
    "anchors:\n"
    "  - [1,2, 3,4]\n"
    "backbone:\n"
    "  [[-1, 1, Conv, [64, 6, 2, 2]],\n"
    "   [-1, 2, C3, [64, False]]]\n"
    "head:\n"
    "  - [[-1, 0], 1, Concat, [1]]\n"
    "  - [-1, 1, nn.Upsample, [None, 2, 'nearest']]\n"
    "  - [[2], 1, Detect, [nc, anchors, [1, 2]]]\n";

// kSmall with its first `from` replaced by `to`.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  return text.replace(text.find(from), from.size(), to);
}

std::string refusal(const std::string& text) {
  return testing::refusal_of([&] { parse_model_table(text, "m.yaml"); });
}

TEST(ModelTable, ReadsLayersWithTheirPlaces) {
  const ModelTable table = parse_model_table(kSmall, "dir/m.yaml");
  EXPECT_EQ(table.name, "m");
  EXPECT_EQ(table.num_classes, 3);
  EXPECT_EQ(table.depth_multiple, 0.5);
  EXPECT_EQ(table.channel_multiple, 8);
  EXPECT_EQ(table.input_channels, 3);
  EXPECT_EQ(table.activation, ActivationFunction());
  using Anchors = std::vector<std::vector<std::pair<double, double>>>;
  EXPECT_EQ(table.anchors, (Anchors{{{1, 2}, {3, 4}}}));
  ASSERT_EQ(table.layers.size(), 5u);
  EXPECT_EQ(table.layers[0].module, "Conv");
  EXPECT_EQ(table.layers[1].repeats, 2);
  EXPECT_EQ(yaml::to_string(table.layers[1].place), "dir/m.yaml:8:4");
  EXPECT_EQ(table.layers[2].from, (std::vector<int>{-1, 0}));
  using Arguments = std::vector<ModelTable::Argument>;
  EXPECT_EQ(table.layers[1].args, (Arguments{64.0, "False"}));
  EXPECT_EQ(table.layers[3].args, (Arguments{"None", 2.0, "nearest"}));
  EXPECT_EQ(table.layers[4].args,
            (Arguments{"nc", "anchors", std::vector<double>{1, 2}}));
}

TEST(ModelTable, OptionalKeys) {
  const ModelTable table = parse_model_table(
      kSmall +
          "activation: nn.ReLU()\nchannel_multiple: 16\nch: 1\ninplace: True\n",
      "m.yaml");
  EXPECT_EQ(table.activation, kRelu);
  EXPECT_EQ(table.channel_multiple, 16);
  EXPECT_EQ(table.input_channels, 1);
}

// kSmall with `sizes` in place of the two multiples.
std::string with_scales(const std::string& sizes) {
  return changed("depth_multiple: 0.5\nwidth_multiple: 1.0\n", sizes);
}

TEST(ModelTable, ASizeIsNamedByTheFileOrByScale) {
  const std::string sizes =
      "scales: {n: [0.33, 0.25, 1024], x: [1, 1.25, 512]}\n";
  const ModelTable by_name =
      parse_model_table(with_scales(sizes), "dir/yolov8x.yaml");
  EXPECT_EQ(by_name.depth_multiple, 1);
  EXPECT_EQ(by_name.width_multiple, 1.25);
  EXPECT_EQ(by_name.max_channels, 512);
  const ModelTable by_scale =
      parse_model_table(with_scales(sizes + "scale: n\n"), "yolov8x.yaml");
  EXPECT_EQ(by_scale.width_multiple, 0.25);
  EXPECT_EQ(
      parse_model_table(with_scales("scales: {m: [1, 1, 64]}\n"), "a.yaml")
          .max_channels,
      64);
  const ModelTable again =
      parse_model_table(model_table_text(by_name), "again.yaml");
  EXPECT_EQ(model_table_text(again), model_table_text(by_name));
  EXPECT_EQ(again.max_channels, 512);

  EXPECT_EQ(refusal(with_scales(sizes)),
            "[config] m.yaml:2:9: the file has the sizes n, x: name one: "
            "scale: n");
  EXPECT_EQ(refusal(with_scales(sizes + "scale: s\n")),
            "[config] m.yaml:3:8: scale is s: write one of n, x");
  EXPECT_EQ(refusal(with_scales("scales: {n: [1, 1]}\n")),
            "[config] m.yaml:2:13: scale n is a list: write [depth_multiple, "
            "width_multiple, max_channels]");
  EXPECT_EQ(refusal(with_scales("scales: 3\n")),
            "[config] m.yaml:2:9: scales is '3': write sizes, for example "
            "n: [0.33, 0.25, 1024]");
}

TEST(ModelTable, AHeadWithoutAnchorsIsRead) {
  std::string text = changed("[nc, anchors, [1, 2]]", "[nc]");
  text.erase(text.find("anchors:"),
             text.find("backbone:") - text.find("anchors:"));
  const ModelTable table = parse_model_table(text, "m.yaml");
  EXPECT_TRUE(table.anchors.empty());
  EXPECT_EQ(
      model_table_text(parse_model_table(model_table_text(table), "m.yaml")),
      model_table_text(table));
}

TEST(ModelTable, ImagesHaveAtLeastOneBand) {
  EXPECT_EQ(parse_model_table(kSmall + "ch: 5\n", "m.yaml").input_channels, 5);
  EXPECT_EQ(refusal(kSmall + "ch: 0\n"),
            "[config] m.yaml:13:5: ch is 0: write a whole number from 1 to "
            "512");
  EXPECT_EQ(refusal(kSmall + "ch: 513\n"),
            "[config] m.yaml:13:5: ch is 513: write a whole number from 1 to "
            "512");
}

TEST(ModelTable, Activations) {
  const auto activation_of = [](const std::string& name) {
    return parse_model_table(kSmall + "activation: " + name + "\n", "m.yaml")
        .activation;
  };
  using Kind = ActivationKind;
  EXPECT_EQ(activation_of("nn.SiLU()"), ActivationFunction());
  EXPECT_EQ(activation_of("ReLU"), kRelu);
  EXPECT_EQ(activation_of("nn.LeakyReLU(0.1)"),
            (ActivationFunction{Kind::kLeaky, 0.1}));
  EXPECT_EQ(activation_of("nn.LeakyReLU()"),
            (ActivationFunction{Kind::kLeaky, 0.01}));
  EXPECT_EQ(activation_of("nn.Hardswish()"),
            (ActivationFunction{Kind::kHardswish}));
  EXPECT_EQ(activation_of("nn.Mish"), (ActivationFunction{Kind::kMish}));
  EXPECT_EQ(activation_of("nn.Identity()"), kIdentity);
  const auto refused = [](const std::string& name) {
    return refusal(kSmall + "activation: " + name + "\n");
  };
  const std::string remedy =
      ": write one of nn.SiLU(), nn.ReLU(), nn.Hardswish(), nn.Mish(), "
      "nn.Identity(), nn.LeakyReLU(0.1)";
  EXPECT_EQ(refused("nn.PReLU()"),
            "[config] m.yaml:13:13: activation is nn.PReLU()" + remedy);
  EXPECT_EQ(refused("nn.ReLU(6)"),
            "[config] m.yaml:13:13: activation is nn.ReLU(6)" + remedy);
  EXPECT_EQ(refused("nn.LeakyReLU(2)"),
            "[config] m.yaml:13:13: activation is nn.LeakyReLU(2)" + remedy);
  EXPECT_EQ(refused("ReLU)"),
            "[config] m.yaml:13:13: activation is ReLU)" + remedy);
}

TEST(ModelTable, Refusals) {
  EXPECT_EQ(refusal(changed("nc: 3", "nc: 0")),
            "[config] m.yaml:1:5: nc is 0: write a whole number from 1 to "
            "100000");
  EXPECT_EQ(refusal(changed("nc: 3\n", "")),
            "[config] m.yaml:1:1: the key 'nc' is missing: add a line 'nc: "
            "...'");
  EXPECT_EQ(refusal(changed("depth_multiple: 0.5", "depth_multiple: -1")),
            "[config] m.yaml:2:17: depth_multiple is -1: write a number above "
            "0 and at most 100");
  EXPECT_EQ(refusal(changed("width_multiple", "widht_multiple")),
            "[config] m.yaml:3:1: unknown key 'widht_multiple' in a model "
            "file: did you mean 'width_multiple'?");
  EXPECT_EQ(refusal(changed("[1,2, 3,4]", "[1,2, 3]")),
            "[config] m.yaml:5:5: a level of anchors has 3 numbers: write "
            "widths and heights in pairs");
  EXPECT_EQ(refusal(changed("[1,2, 3,4]", "[1,2]\n  - [1,2, 3,4]")),
            "[config] m.yaml:6:5: this level has 2 anchors, the first has 1: "
            "give every level the same number");
  EXPECT_EQ(refusal(changed("[1,2, 3,4]", "[1,-2]")),
            "[config] m.yaml:5:6: an anchor of 1 x -2: anchors are pixels "
            "above 0");
  EXPECT_EQ(refusal(changed("\n  - [1,2, 3,4]", " 3")),
            "[config] m.yaml:4:10: anchors is a number per level (3), to be "
            "found from the data: write them as one list of widths and "
            "heights per level: training replaces what does not fit the "
            "boxes");
  EXPECT_EQ(
      refusal(changed("[-1, 2, C3, [64, False]]", "[-1, 2, C3]")),
      "[config] m.yaml:8:4: this layer is a list of 3 elements: a layer is "
      "[from, repeats, module, args]");
  EXPECT_EQ(refusal(changed("[-1, 2, C3", "[-1, 0, C3")),
            "[config] m.yaml:8:9: repeats is 0: write a whole number from 1 to "
            "1000");
  EXPECT_EQ(refusal(changed("[64, False]", "64")),
            "[config] m.yaml:8:16: args is '64': write a list here, [] for "
            "none");
  EXPECT_EQ(refusal(changed("[64, False]", "[{a: 1}]")),
            "[config] m.yaml:8:17: an argument is a mapping: write a number, a "
            "word or a list of numbers");
  EXPECT_EQ(refusal(changed("C3, [64, False]", std::string(61, 'C') + ", []")),
            "[config] m.yaml:8:12: module is '" + std::string(60, 'C') +
                "...': write a word of at most 60 characters");
  EXPECT_EQ(refusal(changed("[64, False]", "[" + std::string(4000, 'x') + "]")),
            "[config] m.yaml:8:17: an argument is '" + std::string(60, 'x') +
                "...': write a word of at most 60 characters");
  EXPECT_EQ(refusal(changed("[[-1, 0], 1", "[[x, 0], 1")),
            "[config] m.yaml:10:7: from is 'x': write a whole number here");
}

TEST(ModelTable, ShippedModelsByNameAndByPath) {
  struct Shape {
    size_t layers, levels;
  };
  const std::map<std::string, Shape> variants = {
      {"yolov5s-ghost", {25, 3}},
      {"yolov5s-mobilenetv3", {28, 3}},
      {"yolov5s-p2", {32, 4}},
      {"yolov5s-p7", {43, 5}},
      {"yolov5s-shufflenetv2", {24, 3}}};
  EXPECT_EQ(yaml::shipped_names("model").size(), 25u + variants.size());
  for (const std::string& name : yaml::shipped_names("model")) {
    const ModelTable table = load_model_table(name);
    const auto variant = variants.find(name);
    const bool has_anchors = name[5] == '5' && !name.ends_with("u");
    const Shape shape = variant != variants.end() ? variant->second
                        : name.ends_with("6")     ? Shape{34, 4}
                        : name.ends_with("6u")    ? Shape{34, 0}
                        : name.ends_with("u") || !has_anchors
                            ? Shape{name[5] == '8' ? 23u : 25u, 0}
                            : Shape{25, 3};
    EXPECT_EQ(table.name, name);
    EXPECT_EQ(table.num_classes, 80);
    EXPECT_EQ(table.layers.size(), shape.layers) << name;
    EXPECT_EQ(table.anchors.size(), shape.levels) << name;
    EXPECT_EQ(table.layers.back().module, "Detect");
  }
  EXPECT_EQ(load_model_table("yolov5n.yaml").name, "yolov5n");
  const testing::TemporaryFolder folder;
  EXPECT_EQ(load_model_table(folder.write("yolov5n.yaml", kSmall)).num_classes,
            3);
}

TEST(ModelTable, UnknownNamesGetTheNearestAndTheList) {
  const std::string list =
      "yolov5l yolov5l6 yolov5l6u yolov5lu yolov5m yolov5m6 "
      "yolov5m6u yolov5mu yolov5n yolov5n6 yolov5n6u yolov5nu "
      "yolov5s yolov5s-ghost yolov5s-mobilenetv3 yolov5s-p2 "
      "yolov5s-p7 yolov5s-shufflenetv2 yolov5s6 yolov5s6u yolov5su "
      "yolov5x yolov5x6 yolov5x6u yolov5xu yolov8l yolov8m yolov8n "
      "yolov8s yolov8x";
  EXPECT_EQ(testing::refusal_of([] { load_model_table("yolo5n"); }),
            "[model] there is no file yolo5n, nor a shipped model file of that "
            "name: did you mean 'yolov5n'? There are: " +
                list);
  EXPECT_EQ(testing::refusal_of([] { load_model_table("resnet152.yaml"); }),
            "[model] there is no file resnet152.yaml, nor a shipped model file "
            "of that name: give a path or one of " +
                list);
}

int64_t scaled_channels(const ModelTable& table, double channels) {
  return static_cast<int64_t>(std::ceil(channels * table.width_multiple /
                                        table.channel_multiple)) *
         table.channel_multiple;
}

double number(const ModelTable::Layer& layer, size_t index) {
  return std::get<double>(layer.args.at(index));
}

TEST(ModelTable, LayersEqualTheReference) {
  const std::string path =
      HEADROOM_SOURCE_DIR "/../shared/parity/architecture.json";
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << "no " << path;
  std::cout << "parity file used: architecture.json\n";
  const nlohmann::json reference = nlohmann::json::parse(file);
  for (const std::string& name : yaml::shipped_names("model")) {
    const ModelTable table = load_model_table(name);
    // The reference has YOLOv5's own models.
    if (name.find('-') != std::string::npos || table.anchors.empty()) continue;
    const nlohmann::json& model = reference.at(name.substr(6));
    EXPECT_EQ(table.anchors,
              model.at("anchors_px").get<decltype(table.anchors)>())
        << name;
    const nlohmann::json& all_expected = model.at("layers");
    ASSERT_EQ(table.layers.size(), all_expected.size()) << name;
    for (size_t i = 0; i < all_expected.size(); ++i) {
      const ModelTable::Layer& layer = table.layers[i];
      const nlohmann::json& expected = all_expected[i];
      SCOPED_TRACE(name + " layer " + std::to_string(i) + " " +
                   expected.dump());
      EXPECT_EQ(layer.module.substr(layer.module.rfind('.') + 1),
                expected.at("kind").get<std::string>());
      EXPECT_EQ(layer.from, expected.at("from").get<std::vector<int>>());
      if (layer.module == "Conv" || layer.module == "C3" ||
          layer.module == "SPPF") {
        EXPECT_EQ(scaled_channels(table, number(layer, 0)),
                  expected.at("c_out"));
      }
      if (layer.module == "Conv") {
        EXPECT_EQ(number(layer, 1), expected.at("kernel"));
        EXPECT_EQ(number(layer, 2), expected.at("stride"));
        EXPECT_EQ(layer.args.size() == 4 ? number(layer, 3)
                                         : std::floor(number(layer, 1) / 2),
                  expected.at("pad"));
      }
      if (layer.module == "C3") {
        EXPECT_EQ(
            std::max(1.0, std::nearbyint(layer.repeats * table.depth_multiple)),
            expected.at("repeats"));
        EXPECT_EQ(layer.args.size() == 1, expected.at("shortcut").get<bool>());
      }
      if (layer.module == "SPPF") {
        EXPECT_EQ(number(layer, 1), expected.at("pool"));
      }
    }
  }
}

}  // namespace
}  // namespace headroom::layers
