// Tests how layers with explicit widths are read, costed and refused. Also
// tests the text form of tables, and tables that are recorded in weights.
#include "configs/layers/layer_widths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/layers/layer_modules.h"
#include "configs/layers/model_table.h"
#include "configs/yaml/shipped_files.h"
#include "tests/support/refusal.h"

namespace headroom::layers {
namespace {

using ::testing::HasSubstr;
using Widths = std::vector<int64_t>;

const std::vector<MapShape> kInputs = {{16, 8}};

ModelTable table_of(const std::string& line, const std::string& multiples) {
  return parse_model_table(
      "nc: 2\n" + multiples +
          "channel_multiple: 1\nanchors: [[1, 1]]\nbackbone: [" + line +
          "]\nhead: [[-1, 1, Detect, [nc, anchors]]]\n",
      "m.yaml");
}

// The channels of all convolutions, in the order of the state.
Widths channels_of(const LayerProgram& program) {
  Widths all;
  for (const LayerProgram::Block& block : program.blocks) {
    all.push_back(block.channels);
  }
  return all;
}

Widths channels_of(const std::string& line) {
  const ModelTable table =
      table_of(line, "depth_multiple: 1\nwidth_multiple: 1\n");
  return channels_of(layer_program(table, 0, kInputs, 2));
}

TEST(LayerWidths, TheRuleIsHalf) {
  EXPECT_EQ(channels_of("[-1, 1, C3, [32]]"), (Widths{16, 16, 32, 16, 16}));
  EXPECT_EQ(channels_of("[-1, 1, SPPF, [32, 5]]"), (Widths{8, 32}));
  EXPECT_EQ(channels_of("[-1, 2, Bottleneck, [24]]"), (Widths{12, 24, 12, 24}));
}

TEST(LayerWidths, WrittenOnesCountAsTheyAre) {
  EXPECT_EQ(channels_of("[-1, 1, C3, [64, False, [8, 24, 3, 5]]]"),
            (Widths{8, 24, 64, 3, 5}));
  EXPECT_EQ(channels_of("[-1, 1, SPPF, [64, 5, 7]]"), (Widths{7, 64}));
  EXPECT_EQ(channels_of("[-1, 1, SPP, [64, [5, 9], 7]]"), (Widths{7, 64}));
  EXPECT_EQ(channels_of("[-1, 1, Bottleneck, [16, True, [5]]]"),
            (Widths{5, 16}));
  EXPECT_EQ(channels_of("[-1, 2, Bottleneck, [16, False, [5, 9, 3]]]"),
            (Widths{5, 9, 3, 16}));
  EXPECT_EQ(channels_of("[-1, 1, C3Ghost, [16, False, [8, 6, 3]]]"),
            (Widths{8, 6, 16, 3, 3, 4, 4}));
}

TEST(LayerWidths, WidthsThatDoNotFitAreRefusedWithTheirPlace) {
  const auto refusal = [](const std::string& line) {
    return testing::refusal_of([&] { channels_of(line); });
  };
  EXPECT_EQ(refusal("[-1, 1, C3, [64, True, [8, 24, 3]]]"),
            "[model] m.yaml:6:12: layer 0: argument 3 of C3 lists 3 widths, "
            "and with 1 bottlenecks there are 4: write channels, shortcut, "
            "[cv1, cv2, then two of each bottleneck], or leave them out");
  EXPECT_THAT(refusal("[-1, 1, C3, [64, True, [8, 24, 3, 5]]]"),
              HasSubstr("5 channels, to be added to 8"));
  EXPECT_EQ(refusal("[-1, 1, C3, [64, True, [8, 24, 3, 8]]]"), "accepted");
  EXPECT_THAT(refusal("[-1, 2, Bottleneck, [16, True, [8, 12, 8]]]"),
              HasSubstr("16 channels, to be added to 12"));
  EXPECT_THAT(refusal("[-1, 1, C3Ghost, [16, True, [7, 8, 2]]]"),
              HasSubstr("a ghost convolution to 7 channels"));
  for (const char* line : {"[-1, 1, C3, [64, False, [0, 24, 3, 8]]]",
                           "[-1, 1, C3, [64, False, [8, 2.5, 3, 8]]]",
                           "[-1, 1, SPPF, [64, 5, 16385]]",
                           "[-1, 1, SPP, [64, [5, 9, 13], [7]]]"}) {
    EXPECT_THAT(refusal(line), HasSubstr("from 1 to 16384")) << line;
  }
}

// A line that states all widths describes the same layer as a line without
// them.
TEST(LayerWidths, ALineWrittenOutIsTheSameLayer) {
  for (const char* line :
       {"[-1, 1, Conv, [32, 3, 2]]", "[-1, 1, Conv, [32, 3, 1, None, 16]]",
        "[-1, 1, DWConv, [32, 3, 2]]", "[-1, 1, Focus, [32, 3]]",
        "[-1, 1, Bottleneck, [32]]", "[-1, 1, Bottleneck, [64]]",
        "[-1, 9, Bottleneck, [64]]", "[-1, 3, C3, [64]]",
        "[-1, 9, C3, [64, False]]", "[-1, 1, GhostConv, [64, 3, 2]]",
        "[-1, 6, C3Ghost, [64, False]]", "[-1, 1, SPP, [64]]",
        "[-1, 1, SPPF, [64, 5]]",
        "[-1, 1, InvertedResidual, [32, 96, 3, 1, False, RE]]"}) {
    const ModelTable table =
        table_of(line, "depth_multiple: 0.33\nwidth_multiple: 0.5\n");
    const LayerProgram program = layer_program(table, 0, kInputs, 2);
    const LayerWidths declared = layer_widths(table, 0, kInputs, 2);
    Widths widths;
    for (const std::string& name : declared.blocks) {
      for (const LayerProgram::Block& block : program.blocks) {
        if (block.name == name) widths.push_back(block.channels);
      }
    }
    ModelTable written = table;
    written.depth_multiple = written.width_multiple = 1;
    declared.write(program.output().channels, widths, written.layers[0]);
    written = parse_model_table(model_table_text(written), "m.yaml");
    const LayerProgram again = layer_program(written, 0, kInputs, 2);
    EXPECT_EQ(channels_of(again), channels_of(program)) << line;
    ASSERT_EQ(again.steps.size(), program.steps.size()) << line;
    for (size_t i = 0; i < again.steps.size(); ++i) {
      EXPECT_EQ(again.steps[i].operation, program.steps[i].operation) << line;
      EXPECT_EQ(again.steps[i].inputs, program.steps[i].inputs) << line;
    }
  }
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
  table.layers[2].args = {64.0, "True", std::vector<double>{8, 16, 8, 8}};
  table.layers[2].repeats = 1;
  const auto metadata = model_metadata("small", table);
  const ModelTable read = table_of_weights(metadata, "w.safetensors");
  EXPECT_EQ(read.name, "small");
  EXPECT_EQ(read.layers[2].args, table.layers[2].args);
  // 1x1 of 32 to 8 and of 32 to 16, 8 to 8, 3x3 of 8 to 8, 1x1 of 24 to 16;
  // then scales and biases.
  const LayerCost cost = layer_costs(read).at(2);
  EXPECT_EQ(cost.parameters, 32 * 8 + 32 * 16 + 8 * 8 + 9 * 8 * 8 + 24 * 16 +
                                 2 * (8 + 16 + 8 + 8 + 16));
  EXPECT_EQ(testing::refusal_of([] { table_of_weights({}, "w.pt"); }),
            "[weights] w.pt does not say which model it holds: name it, for "
            "example --cfg yolov5n");
  EXPECT_EQ(testing::refusal_of([] {
              table_of_weights(
                  {{"model", ""}, {kNetwork, "YOLO11n (detection)"}}, "w.pt");
            }),
            "[weights] w.pt, which holds YOLO11n (detection), is none of the "
            "networks that are trained here, the detectors of YOLOv5, YOLOv5u "
            "and YOLOv8: take weights of one, for example from headroom fetch "
            "yolov5n.pt, or name a "
            "model that it has parts of: --cfg");
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
