// Written widths: read, costed and refused; tables as text; what weights say.
#include "configs/layers/layer_widths.h"

#include <gtest/gtest.h>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "configs/yaml/shipped_files.h"
#include "tests/configs/refusal.h"

namespace headroom::layers {
namespace {

using Widths = std::vector<int64_t>;

ModelTable::Layer layer(std::vector<ModelTable::Argument> args) {
  ModelTable::Layer result;
  result.from = {-1};
  result.module = "C3";
  result.args = std::move(args);
  result.place = {"m.yaml", 7, 5};
  return result;
}

ModelTable::Argument list(std::vector<double> numbers) { return numbers; }

TEST(LayerWidths, TheRuleIsHalf) {
  EXPECT_EQ(c3_widths(layer({64.0}), 32, 1, true), (Widths{16, 16, 16, 16}));
  EXPECT_EQ(sppf_width(layer({64.0, 5.0}), 48), 24);
}

TEST(LayerWidths, WrittenOnesCountAsTheyAre) {
  const auto written = layer({64.0, "False", list({8, 24, 3, 5})});
  EXPECT_EQ(c3_widths(written, 64, 1, false), (Widths{8, 24, 3, 5}));
  EXPECT_EQ(sppf_width(layer({64.0, 5.0, 7.0}), 48), 7);
}

TEST(LayerWidths, WhatDoesNotFitIsRefusedWithItsPlace) {
  const auto refusal = [](std::vector<double> widths, bool shortcut) {
    return configs::refusal_of([&] {
      c3_widths(layer({64.0, "True", list(std::move(widths))}), 64, 1,
                shortcut);
    });
  };
  EXPECT_EQ(refusal({8, 24, 3}, true).substr(0, 38),
            "[model] m.yaml:7:5: argument 3 of C3 l");
  EXPECT_NE(refusal({8, 24, 3, 5}, true).find("5 channels, to be added to 8"),
            std::string::npos);
  EXPECT_EQ(refusal({8, 24, 3, 8}, true), "nothing was refused");
  EXPECT_NE(refusal({0, 24, 3, 8}, false).find("from 1 to 16384"),
            std::string::npos);
  EXPECT_NE(refusal({8, 2.5, 3, 8}, false).find("from 1 to 16384"),
            std::string::npos);
}

TEST(ModelTableText, IsReadBackAsTheSameTable) {
  for (const std::string& name : yaml::shipped_names("model")) {
    const ModelTable table = load_model_table(name);
    const std::string text = model_table_text(table);
    const ModelTable read = parse_model_table(text, name + ".yaml");
    EXPECT_EQ(model_table_text(read), text);
    ASSERT_EQ(read.layers.size(), table.layers.size());
    for (size_t i = 0; i < table.layers.size(); ++i) {
      EXPECT_EQ(read.layers[i].from, table.layers[i].from);
      EXPECT_EQ(read.layers[i].args, table.layers[i].args);
      EXPECT_EQ(read.layers[i].module, table.layers[i].module);
    }
    EXPECT_EQ(read.anchors, table.anchors);
  }
}

TEST(ModelMetadata, OnlyATableThatIsNotShippedGoesAlong) {
  ModelTable table = load_model_table("yolov5n");
  EXPECT_EQ(model_metadata("yolov5n", table).count("table"), 0u);
  table.layers[2].args = {64.0, "True", list({8, 16, 8, 8})};
  table.layers[2].repeats = 1;
  const auto metadata = model_metadata("small", table);
  const ModelTable read = table_of_weights(metadata, "w.safetensors");
  EXPECT_EQ(read.name, "small");
  EXPECT_EQ(read.layers[2].args, table.layers[2].args);
  // 1x1 of 32 to 8 and to 16, 8 to 8, 3x3 of 8 to 8, 1x1 of 24 to 16; scales
  // and biases.
  const LayerCost cost = layer_costs(read).at(2);
  EXPECT_EQ(cost.parameters, 32 * 8 + 32 * 16 + 8 * 8 + 9 * 8 * 8 + 24 * 16 +
                                 2 * (8 + 16 + 8 + 8 + 16));
  EXPECT_EQ(configs::refusal_of([] { table_of_weights({}, "w.pt"); }),
            "[weights] w.pt does not say which model it holds: name it, for "
            "example --cfg yolov5n");
}

TEST(ModelMetadata, TheInputIsReadBackOrUnknown) {
  std::map<std::string, std::string> metadata;
  EXPECT_FALSE(trained_size(metadata));
  describe_input(metadata, {224, 320}, 32);
  EXPECT_EQ(
      metadata,
      (std::map<std::string, std::string>{
          {"imgsz", "[224, 320]"}, {"stride", "32"}, {"range", "[0, 1]"}}));
  const std::optional<TrainedSize> size = trained_size(metadata);
  ASSERT_TRUE(size);
  EXPECT_EQ(size->height, 224);
  EXPECT_EQ(size->width, 320);
  for (const char* damaged :
       {"", "224", "[224]", "[224, 0]", "[-1, 32]", "[224, 65537]",
        "[99999999999999999999, 32]", "[a, b]", "[224, 320"}) {
    EXPECT_FALSE(trained_size({{"imgsz", damaged}})) << damaged;
  }
}

}  // namespace
}  // namespace headroom::layers
