// Tests the parts of each module: the names in the state, the shapes, the
// values of the steps, and which arguments are refused.
#include "configs/layers/layer_modules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/refusal.h"

namespace headroom::layers {
namespace {

using BlockKind = LayerProgram::BlockKind;
using Operation = LayerProgram::Operation;

// A table whose tested layer is `layer`; its input is a map of 16 channels at
// stride 8.
ModelTable table_of(const std::string& layer) {
  return parse_model_table(
      "nc: 2\ndepth_multiple: 1\nwidth_multiple: 1\nchannel_multiple: 1\n"
      "anchors: [[1, 1]]\n"
      "activation: nn.Mish()\nbackbone: [" +
          layer + "]\nhead: [[-1, 1, Detect, [nc, anchors]]]\n",
      "m.yaml");
}

LayerProgram program_of(const std::string& layer) {
  return layer_program(table_of(layer), 0, {{16, 8}}, 2);
}

std::string refusal(const std::string& layer) {
  return testing::refusal_of([&] { program_of(layer); });
}

// Describes each block as "cv1. 16>8 k3 s2 p1 g1 act", in the state's order.
std::vector<std::string> blocks_of(const LayerProgram& program) {
  std::vector<std::string> all;
  for (const LayerProgram::Block& block : program.blocks) {
    const auto number = [](const char* word, int64_t value) {
      return " " + std::string(word) + std::to_string(value);
    };
    all.push_back(block.name + " " + std::to_string(block.in_channels) + ">" +
                  std::to_string(block.channels) + number("k", block.kernel) +
                  number("s", block.stride) + number("p", block.padding) +
                  number("g", block.groups) +
                  (block.activation == kIdentity ? " linear" : ""));
  }
  return all;
}

using Names = std::vector<std::string>;

TEST(LayerModules, ConvWithGroups) {
  const LayerProgram conv = program_of("[-1, 1, Conv, [32, 3, 2, None, 4]]");
  EXPECT_EQ(blocks_of(conv), Names{" 16>32 k3 s2 p1 g4"});
  EXPECT_EQ(conv.blocks[0].activation,
            (ActivationFunction{ActivationKind::kMish}));
  EXPECT_EQ(conv.output(), (MapShape{32, 16}));
  EXPECT_EQ(conv.blocks[0].parameters,
            (std::vector<int64_t>{9 * 16 / 4 * 32, 32, 32}));
  EXPECT_EQ(conv.blocks[0].norm_channels, 32);
  EXPECT_EQ(conv.inside(), LayerInside::kOneConvolution);
}

TEST(LayerModules, DWConvHasAsManyGroupsAsChannelsAllow) {
  EXPECT_EQ(blocks_of(program_of("[-1, 1, DWConv, [24, 5]]")),
            Names{" 16>24 k5 s1 p2 g8"});
}

TEST(LayerModules, FocusFoldsFirst) {
  const LayerProgram focus = program_of("[-1, 1, Focus, [32, 3]]");
  EXPECT_EQ(blocks_of(focus), Names{"conv. 64>32 k3 s1 p1 g1"});
  EXPECT_EQ(focus.steps[0].operation, Operation::kFold);
  EXPECT_EQ(focus.output(), (MapShape{32, 16}));
}

TEST(LayerModules, RepeatedBottlenecksAreNumbered) {
  EXPECT_EQ(blocks_of(program_of("[-1, 1, Bottleneck, [32]]")),
            (Names{"cv1. 16>16 k1 s1 p0 g1", "cv2. 16>32 k3 s1 p1 g1"}));
  const LayerProgram two = program_of("[-1, 2, Bottleneck, [16]]");
  EXPECT_EQ(blocks_of(two),
            (Names{"0.cv1. 16>8 k1 s1 p0 g1", "0.cv2. 8>16 k3 s1 p1 g1",
                   "1.cv1. 16>8 k1 s1 p0 g1", "1.cv2. 8>16 k3 s1 p1 g1"}));
  EXPECT_EQ(two.steps.back().operation, Operation::kAdd);
}

TEST(LayerModules, GhostConvMakesHalfOfHalf) {
  const LayerProgram ghost = program_of("[-1, 1, GhostConv, [32, 3, 2]]");
  EXPECT_EQ(blocks_of(ghost),
            (Names{"cv1. 16>16 k3 s2 p1 g1", "cv2. 16>16 k5 s1 p2 g16"}));
  EXPECT_EQ(ghost.output(), (MapShape{32, 16}));
}

// The last ghost convolution of a bottleneck has no activation.
TEST(LayerModules, C3GhostInTheStatesOrder) {
  const LayerProgram c3 = program_of("[-1, 1, C3Ghost, [16]]");
  EXPECT_EQ(blocks_of(c3),
            (Names{"cv1. 16>8 k1 s1 p0 g1", "cv2. 16>8 k1 s1 p0 g1",
                   "cv3. 16>16 k1 s1 p0 g1", "m.0.conv.0.cv1. 8>2 k1 s1 p0 g1",
                   "m.0.conv.0.cv2. 2>2 k5 s1 p2 g2",
                   "m.0.conv.2.cv1. 4>4 k1 s1 p0 g1 linear",
                   "m.0.conv.2.cv2. 4>4 k5 s1 p2 g4 linear"}));
}

TEST(LayerModules, C2fJoinsBothHalvesAndEveryBottleneck) {
  const LayerProgram c2f = program_of("[-1, 2, C2f, [32]]");
  EXPECT_EQ(
      blocks_of(c2f),
      (Names{"cv1. 16>32 k1 s1 p0 g1", "cv2. 64>32 k1 s1 p0 g1",
             "m.0.cv1. 16>16 k3 s1 p1 g1", "m.0.cv2. 16>16 k3 s1 p1 g1",
             "m.1.cv1. 16>16 k3 s1 p1 g1", "m.1.cv2. 16>16 k3 s1 p1 g1"}));
  EXPECT_EQ(c2f.steps[1].first_channel, 16);
  const auto adds = [](const LayerProgram& program) {
    return std::ranges::count(program.steps, Operation::kAdd,
                              &LayerProgram::Step::operation);
  };
  EXPECT_EQ(adds(c2f), 0);
  EXPECT_EQ(adds(program_of("[-1, 2, C2f, [32, True]]")), 2);
}

TEST(LayerModules, ShuffleNetV2) {
  const LayerProgram one = program_of("[-1, 1, ShuffleNetV2, [16]]");
  EXPECT_EQ(blocks_of(one), (Names{"branch2.0. 8>8 k1 s1 p0 g1",
                                   "branch2.1. 8>8 k3 s1 p1 g8 linear",
                                   "branch2.2. 8>8 k1 s1 p0 g1"}));
  EXPECT_EQ(one.steps[1].first_channel, 8);
  EXPECT_EQ(one.steps.back().groups, 2);
  const LayerProgram two = program_of("[-1, 1, ShuffleNetV2, [32, 2]]");
  EXPECT_EQ(blocks_of(two), (Names{"branch1.0. 16>16 k3 s2 p1 g16 linear",
                                   "branch1.1. 16>16 k1 s1 p0 g1",
                                   "branch2.0. 16>16 k1 s1 p0 g1",
                                   "branch2.1. 16>16 k3 s2 p1 g16 linear",
                                   "branch2.2. 16>16 k1 s1 p0 g1"}));
  EXPECT_EQ(two.output(), (MapShape{32, 16}));
}

// A 9x9 max pool equals two 5x5 max pools in sequence.
TEST(LayerModules, SppIsAChainOfPools) {
  const LayerProgram spp = program_of("[-1, 1, SPP, [32, [5, 9, 13]]]");
  EXPECT_EQ(blocks_of(spp),
            (Names{"cv1. 16>8 k1 s1 p0 g1", "cv2. 32>32 k1 s1 p0 g1"}));
  EXPECT_EQ(spp.steps[1].windows, (std::vector<int64_t>{5, 5, 5}));
  const LayerProgram two = program_of("[-1, 1, SPP, [32, [3, 9]]]");
  EXPECT_EQ(two.steps[1].windows, (std::vector<int64_t>{3, 7}));
}

// Tests MobileNetV3's widest block, and then a block with equally many input
// and output channels, which adds its input to its output.
TEST(LayerModules, InvertedResidual) {
  const LayerProgram wide =
      program_of("[-1, 1, InvertedResidual, [24, 72, 5, 2, True, RE]]");
  EXPECT_EQ(
      blocks_of(wide),
      (Names{"expand. 16>72 k1 s1 p0 g1", "depthwise. 72>72 k5 s2 p2 g72",
             "se. 72>72 k1 s1 p0 g1", "project. 72>24 k1 s1 p0 g1 linear"}));
  EXPECT_EQ(wide.blocks[0].activation, kRelu);
  // 18 is rounded up to 24, since 16 would be more than a tenth less.
  EXPECT_EQ(wide.blocks[2].squeezed, 24);
  EXPECT_EQ(wide.blocks[2].parameters,
            (std::vector<int64_t>{72 * 24, 24, 24 * 72, 72}));
  EXPECT_EQ(wide.blocks[2].norm_channels, 0);
  EXPECT_EQ(wide.block_of(wide.steps[2]).kind, BlockKind::kSqueezeExcite);
  EXPECT_EQ(wide.output(), (MapShape{24, 16}));
  const LayerProgram same =
      program_of("[-1, 1, InvertedResidual, [16, 16, 3, 1]]");
  EXPECT_EQ(blocks_of(same), (Names{"depthwise. 16>16 k3 s1 p1 g16",
                                    "project. 16>16 k1 s1 p0 g1 linear"}));
  EXPECT_EQ(same.blocks[0].activation.kind, ActivationKind::kMish);
  EXPECT_EQ(same.steps.back().operation, Operation::kAdd);
  const LayerProgram hard =
      program_of("[-1, 1, InvertedResidual, [16, 32, 3, 1, False, HS]]");
  EXPECT_EQ(hard.blocks[1].activation.kind, ActivationKind::kHardswish);
}

TEST(LayerModules, SqueezeExcitation) {
  const LayerProgram layer = program_of("[-1, 1, SqueezeExcitation, [2]]");
  EXPECT_EQ(blocks_of(layer), Names{" 16>16 k1 s1 p0 g1"});
  EXPECT_EQ(layer.blocks[0].squeezed, 8);
  EXPECT_EQ(layer.blocks[0].parameters.size(), 4U);
  EXPECT_EQ(layer.inside(), LayerInside::kSeveralMaps);
  EXPECT_EQ(layer.output(), (MapShape{16, 8}));
}

// A step has the facts that the planner and the memory model read, so that
// these need not look at its operation.
TEST(LayerModules, StepsSayWhatTheyCost) {
  using InputGradients = LayerProgram::InputGradients;
  const LayerProgram spp = program_of("[-1, 1, SPP, [32, [3, 9]]]");
  const LayerProgram::Step& pools = spp.steps[1];
  EXPECT_TRUE(pools.keeps_inputs());
  EXPECT_FALSE(pools.facts.sums_channels);
  EXPECT_EQ(pools.facts.multiply_adds_per_pixel, 0);
  // Two poolings of 8 channels; one map between them.
  EXPECT_EQ(pools.facts.halo_channel_rows,
            (std::vector<int64_t>{2 * 8, 6 * 8}));
  EXPECT_EQ(pools.facts.kept_elements_per_pixel, 8 / 64.0);

  const LayerProgram block =
      program_of("[-1, 1, InvertedResidual, [16, 32, 3, 1, True]]");
  const LayerProgram::Step& depthwise = block.steps[1];
  EXPECT_EQ(depthwise.facts.halo_channel_rows, std::vector<int64_t>{2 * 32});
  EXPECT_EQ(depthwise.facts.multiply_adds_per_pixel, 9 * 32 / 64.0);
  EXPECT_EQ(depthwise.facts.kept_elements_per_pixel, 32 / 64.0);
  const LayerProgram::Step& excite = block.steps[2];
  EXPECT_TRUE(excite.keeps_inputs());
  EXPECT_TRUE(excite.facts.sums_channels);
  EXPECT_EQ(excite.facts.kept_elements_per_pixel, 0);
  const LayerProgram::Step& sum = block.steps.back();
  EXPECT_FALSE(sum.keeps_inputs());
  EXPECT_EQ(sum.facts.input_gradients, InputGradients::kShared);

  // One product per cell of the input, which is the coarser map.
  const LayerProgram grow =
      program_of("[-1, 1, nn.ConvTranspose2d, [8, 2, 2]]");
  EXPECT_EQ(grow.steps[0].facts.multiply_adds_per_pixel, 4 * 16 * 8 / 64.0);
  EXPECT_FALSE(grow.steps[0].facts.sums_channels);
}

TEST(LayerModules, TransposedConvolution) {
  const LayerProgram grow =
      program_of("[-1, 1, nn.ConvTranspose2d, [8, 2, 2]]");
  EXPECT_EQ(grow.output(), (MapShape{8, 4}));
  EXPECT_EQ(grow.blocks[0].parameters, (std::vector<int64_t>{4 * 16 * 8, 8}));
  EXPECT_EQ(grow.blocks[0].norm_channels, 0);
}

TEST(LayerModules, WrongLayersAreRefusedByPlace) {
  const std::string at = "[model] m.yaml:7:12: layer 0: ";
  EXPECT_EQ(refusal("[-1, 1, Conv, [32, 3, 1, None, 3]]"),
            at + "3 groups do not divide 16 channels in and 32 out: use a "
                 "number that divides both");
  EXPECT_EQ(refusal("[-1, 1, DWConv, [32, 4, 1]]"),
            at + "a kernel of 4 with stride 1 and padding 2 does not divide "
                 "the map by the stride: use a padding of half the kernel");
  EXPECT_EQ(refusal("[-1, 1, GhostConv, [7, 3]]"),
            at + "a ghost convolution to 7 channels: give it an even number");
  EXPECT_EQ(refusal("[-1, 1, C3Ghost, [8, Maybe]]"),
            at + "argument 2 of C3Ghost is neither True nor False: write "
                 "[channels] or [channels, False]");
  EXPECT_EQ(refusal("[-1, 1, SPP, [32, [9, 5]]]"),
            at + "a pooling window of 5 after one of 9: use odd ones that "
                 "rise, usually [5, 9, 13]");
  EXPECT_EQ(refusal("[-1, 1, SPP, [32, 5]]"),
            at + "argument 2 of SPP is not a list of whole numbers from 1 to "
                 "31: correct it");
  EXPECT_EQ(refusal("[-1, 1, nn.ConvTranspose2d, [8, 4, 2]]"),
            at + "only a kernel of 2 with stride 2 and padding 0 is "
                 "supported: write [channels, 2, 2]");
  EXPECT_EQ(refusal("[-1, 1, ShuffleNetV2, [32]]"),
            at + "a ShuffleNetV2 of stride 1 makes 16 channels to 32: change "
                 "their number with one of stride 2");
  EXPECT_EQ(refusal("[-1, 1, InvertedResidual, [16, 32, 3, 1, True, SiLU]]"),
            at + "NL is silu, neither RE (ReLU) nor HS (Hardswish): write "
                 "[channels, expanded, kernel, stride, SE, NL], with SE True "
                 "or False and NL RE or HS");
  EXPECT_EQ(refusal("[-1, 1, InvertedResidual, [16, 32, 4, 1]]"),
            at + "a kernel of 4 with stride 1 and padding 2 does not divide "
                 "the map by the stride: use a padding of half the kernel");
  EXPECT_EQ(refusal("[-1, 1, SqueezeExcitation, [0]]"),
            at + "argument 1 of SqueezeExcitation is not a whole number from "
                 "1 to 16384: correct it");
  EXPECT_EQ(refusal("[-1, 2, Focus, [8, 3]]"),
            at + "Focus is not repeated: write 1 for the repeats, or as many "
                 "layers");
}

}  // namespace
}  // namespace headroom::layers
