// Compares the bytes that the operators of a layer keep, and those of their
// backward, with bytes counted by hand: conv_block, resampling and loss, under
// all policies.
#include <gtest/gtest.h>

#include <vector>

#include "parallel/predict/loss.h"
#include "parallel/predict/operators.h"
#include "parallel/predict/policies.h"
#include "tests/parallel/predict/op_context_fixture.h"

namespace headroom::predict {
namespace {

using InputGradients = layers::LayerProgram::InputGradients;

layers::LayerProgram::Block block(int64_t in, int64_t out, int64_t kernel,
                                  int64_t stride) {
  return {"", in, out, kernel, stride, kernel / 2};
}

// A 3x3 convolution from 8 channels at stride 1 to 16 channels at stride 2.
class ConvBlocks : public PassFixture {
 protected:
  static constexpr int64_t kInput = 2 * 32 * 32 * 8 * 4;    // 65,536
  static constexpr int64_t kOutput = 2 * 16 * 16 * 16 * 4;  // 32,768
  static constexpr int64_t kStatistics = 2 * 16 * 8;
  static constexpr int64_t kAffine = 2 * 16 * 4;
  static constexpr int64_t kWeight = 9 * 8 * 16 * 4;
};

TEST_F(ConvBlocks, KeepsItsInputItsConvolutionAndItsStatistics) {
  Map x = map(8, 1);
  Map out = conv_block(context(), x, block(8, 16, 3, 2));
  EXPECT_EQ(out.channels, 16);
  EXPECT_EQ(out.stride, 2);
  EXPECT_EQ(buffers_.live_bytes(), kInput + 2 * kOutput + kStatistics);
  x.memory = out.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(), kInput + kOutput + kStatistics);
}

// The input is an image, which needs no gradient. The gradient of the output is
// overwritten by the gradient of the convolution. The gradient of the weight
// needs its blocks, and two times their bytes in addition.
TEST_F(ConvBlocks, BackwardOfTheFirstOne) {
  Map x = map(8, 1);
  Map out = conv_block(context(), x, block(8, 16, 3, 2));
  x.memory = out.memory = nullptr;
  const int64_t kept = buffers_.live_bytes();
  EXPECT_EQ(peak_of_backward(out, kOutput),
            kept + kOutput + kAffine + 3 * kWeight);
  EXPECT_EQ(buffers_.live_bytes(), 0);
}

TEST_F(ConvBlocks, BackwardHandsTheInputItsGradient) {
  Map x = made_map(8, 1);
  Map out = conv_block(context(), x, block(8, 16, 3, 2));
  x.memory = out.memory = nullptr;
  peak_of_backward(out, kOutput);
  EXPECT_EQ(arrived_, std::vector<int64_t>{kInput});
}

TEST_F(ConvBlocks, ADerivedOutputLeavesTheConvolution) {
  OpContext deriving = context();
  deriving.derive = Derive::kNoted;
  Map x = map(8, 1);
  Map out = conv_block(deriving, x, block(8, 16, 3, 2));
  ASSERT_NE(out.memory->derivation, nullptr);
  const Kept kept = keep(out.memory);
  x.memory = out.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(), kInput + kOutput + kStatistics + kAffine);
}

// One row of the image above and one row below are kept in addition to the map.
TEST_F(ConvBlocks, ASplitImageKeepsItsHalo) {
  shape_.neighbours = 1;
  Map x = map(8, 1);
  Map out = conv_block(context(), x, block(8, 16, 3, 2));
  x.memory = out.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(),
            kInput + kOutput + kStatistics + 2 * 32 * 8 * 4);
}

// A map of 16 channels at stride 4 has 2 * 8 * 8 * 16 * 4 = 8,192 bytes.
class Resampling : public PassFixture {
 protected:
  static constexpr int64_t kMap = 8'192;
};

TEST_F(Resampling, AnAdditionKeepsNothingAndSharesItsGradient) {
  Map a = made_map(16, 4), b = made_map(16, 4);
  Map sum = derived_map(context(), {a, b}, {16, 4}, InputGradients::kShared);
  EXPECT_EQ(buffers_.live_bytes(), 3 * kMap);
  a.memory = b.memory = sum.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(), 0);
  EXPECT_EQ(peak_of_backward(sum, kMap), kMap);
  EXPECT_EQ(arrived_, (std::vector<int64_t>{kMap, kMap}));
}

TEST_F(Resampling, AConcatenationHandsOutSlicesOfOneGradient) {
  Map a = made_map(16, 4), b = made_map(16, 4);
  Map both = derived_map(context(), {a, b}, {32, 4}, InputGradients::kSlices);
  EXPECT_EQ(both.channels, 32);
  EXPECT_EQ(both.memory->bytes, 2 * kMap);
  a.memory = b.memory = both.memory = nullptr;
  EXPECT_EQ(peak_of_backward(both, 2 * kMap), 2 * kMap);
  EXPECT_EQ(arrived_, (std::vector<int64_t>{2 * kMap, 2 * kMap}));
}

TEST_F(Resampling, UpsamplingHasFourTimesTheCells) {
  Map x = made_map(16, 4);
  Map fine = derived_map(context(), {x}, {16, 2}, InputGradients::kOfDense);
  EXPECT_EQ(fine.stride, 2);
  EXPECT_EQ(fine.memory->bytes, 4 * kMap);
  x.memory = fine.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(), 0);
  EXPECT_EQ(peak_of_backward(fine, 4 * kMap), 5 * kMap);
}

// Each of three poolings keeps its input, and indices of 8 bytes per element.
TEST_F(Resampling, PoolingsKeepInputsAndIndices) {
  Map y = made_map(16, 4);
  Map all = chained_pools(context(), y, {5, 5, 5});
  EXPECT_EQ(all.channels, 64);
  y.memory = all.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(), 3 * kMap + 3 * 2 * kMap);
}

// On a device, an index of a window is a byte if the window has few enough
// cells; each of the 2 * 8 * 8 * 16 elements has one, and only if a gradient is
// needed. Backward reads its slice of the gradient in place.
TEST_F(Resampling, PoolingsOnADeviceKeepBytes) {
  shape_.on_device = true;
  Map y = made_map(16, 4);
  Map all = chained_pools(context(), y, {5, 15});
  y.memory = all.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(), 2 * kMap / 4);
  EXPECT_EQ(peak_of_backward(all, 3 * kMap), kMap / 4 + 3 * kMap + 2 * kMap);
  EXPECT_EQ(buffers_.live_bytes(), 0);

  Map fixed = map(16, 4);
  all = chained_pools(context(), fixed, {5, 5, 5});
  fixed.memory = all.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(), 0);
  EXPECT_EQ(buffers_.peak_bytes(), (4 + 4) * kMap);

  y = made_map(16, 4);
  all = chained_pools(context(), y, {17});
  y.memory = all.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(), kMap + 2 * kMap);
}

// The first map has 12 rows more than the rank's 8, and 4 fewer after each
// pooling. The inputs and indices of these larger maps are kept.
TEST_F(Resampling, SplitPoolingsWorkOnWiderMaps) {
  shape_.neighbours = 1;
  Map y = made_map(16, 4);
  Map all = chained_pools(context(), y, {5, 5, 5});
  EXPECT_EQ(all.memory->bytes, 4 * kMap);
  y.memory = all.memory = nullptr;
  const int64_t row = kMap / 8;
  EXPECT_EQ(buffers_.live_bytes(),
            (20 + 16 + 12) * row + 2 * (16 + 12 + 8) * row);
}

class Losses : public PassFixture {};

// 3 anchors of 85 fields on 2 x 4 x 4 cells; ten matches of 80 classes.
TEST_F(Losses, ALossKeepsObjectnessAndItsMatches) {
  Map head = made_map(255, 8);
  const int64_t bytes = head.memory->bytes;
  run_loss(context(), {head}, {80, {10}, false});
  head.memory = nullptr;
  const int64_t objectness = 2 * 4 * 4 * 3 * 4;
  const int64_t classes = 10 * 80 * 4;
  const int64_t kept = objectness + classes + 10 * 4 * 8 + 10 * 8;
  EXPECT_EQ(buffers_.live_bytes(), kept);
  buffers_.reset_peak();
  graph_.run_backward([](int64_t) {}, nullptr);
  EXPECT_EQ(arrived_, std::vector<int64_t>{bytes});
  EXPECT_EQ(buffers_.peak_bytes(), kept + bytes + 2 * classes);
  EXPECT_EQ(buffers_.live_bytes(), 0);
}

// A device writes the gradient of 16-bit maps with 256 channels of 16 bits.
TEST_F(Losses, ADevicesGradientIsAMap) {
  shape_.on_device = true;
  shape_.element_bytes = 2;
  Map head = made_map(255, 8);
  run_loss(context(), {head}, {80, {10}, false});
  head.memory = nullptr;
  graph_.run_backward([](int64_t) {}, nullptr);
  EXPECT_EQ(arrived_, std::vector<int64_t>{2 * 4 * 4 * 256 * 2});
}

TEST_F(Losses, OneClassHasNoClassification) {
  Map head = made_map(18, 8);
  run_loss(context(), {head}, {1, {10}, false});
  head.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(), 2 * 4 * 4 * 3 * 4 + 10 * 5 * 8);
}

// Distances and 80 classes on 2 x 4 x 4 cells; three labels.
TEST_F(Losses, WithoutAnchorsHeadsAndTargetsAreKept) {
  const Map box = made_map(64, 8), cls = made_map(80, 8);
  const int64_t heads = box.memory->bytes + cls.memory->bytes;
  LossShape shape;
  shape.has_anchors = false;
  shape.boxes = 3;
  run_loss(context(), {box, cls}, shape);
  const int64_t targets = 3 * 10 * 88;
  EXPECT_EQ(buffers_.live_bytes(), heads + targets);
  // The sum of a class map: its terms, and these in double.
  EXPECT_EQ(buffers_.peak_bytes(), heads + targets + 3 * cls.memory->bytes);
  buffers_.reset_peak();
  graph_.run_backward([](int64_t) {}, nullptr);
  EXPECT_EQ(buffers_.peak_bytes(), 2 * heads + targets);
  EXPECT_EQ(buffers_.live_bytes(), heads) << "held by the test";
}

// The predicted boxes are freed after the targets are made, and what two ranks
// take of an image before.
TEST_F(Losses, WithoutAnchorsSplitImagesExchangeTakenPlaces) {
  const Map box = made_map(64, 8), cls = made_map(1, 8);
  const int64_t heads = box.memory->bytes + cls.memory->bytes;
  LossShape shape;
  shape.num_classes = 1;
  shape.has_anchors = false;
  shape.boxes = 3;
  const int64_t boxes = 2 * 4 * 4 * 4 * 4, targets = 3 * 10 * 88;
  run_loss(context(), {box, cls}, shape);
  EXPECT_EQ(buffers_.peak_bytes(), heads + boxes + targets);
  shape.ranks_of_image = 6;
  buffers_.reset_peak();
  run_loss(context(), {box, cls}, shape);
  const int64_t taken = 3 * 10 * 2 * 8;
  EXPECT_EQ(buffers_.peak_bytes(), heads + targets + boxes + (1 + 6) * taken);
}

// Two 1x1 blocks of 8 channels at stride 1, in sequence.
class Policies : public PassFixture {
 protected:
  static constexpr int64_t kMap = 2 * 32 * 32 * 8 * 4;
  static constexpr int64_t kStatistics = 2 * 8 * 8;
  static constexpr int64_t kAffine = 2 * 8 * 4;

  static Map two_blocks(const OpContext& context, const Map& x) {
    return conv_block(context, conv_block(context, x, block(8, 8, 1, 1)),
                      block(8, 8, 1, 1));
  }
  // The live bytes when only the policy holds maps.
  int64_t kept(const OpContext& context) {
    Map x = made_map(8, 1);
    last_ = two_blocks(context, x);
    x.memory = last_.memory = nullptr;
    return buffers_.live_bytes();
  }

  Map last_;
};

TEST_F(Policies, KeepHoldsInputsAndConvolutions) {
  EXPECT_EQ(kept(context()), 4 * kMap + 2 * kStatistics);
}

TEST_F(Policies, LeanRecomputesDerivedMaps) {
  SimulatedLean lean;
  OpContext with = context();
  with.policy = &lean;
  with.derive = Derive::kLean;
  EXPECT_EQ(kept(with), 3 * kMap + 2 * kStatistics + kAffine)
      << "the image, two convolutions";
}

TEST_F(Policies, OffloadKeepsSmallTensors) {
  SimulatedOffload offload(buffers_);
  OpContext with = context();
  with.policy = &offload;
  EXPECT_EQ(kept(with), 2 * kStatistics);
  // x, the convolution and the gradient of its output are read back.
  EXPECT_GE(peak_of_backward(last_, kMap), 3 * kMap);
  EXPECT_EQ(buffers_.live_bytes(), 0);
}

TEST_F(Policies, RecomputeHoldsInputsAndDataFromOtherRanks) {
  Map x = made_map(8, 1);
  Map out =
      recompute(context(),
                [](const OpContext& inside, std::vector<Map> inputs) {
                  return std::vector<Map>{two_blocks(inside, inputs.front())};
                },
                {x}, {})
          .front();
  x.memory = out.memory = nullptr;
  EXPECT_EQ(buffers_.live_bytes(), kMap + 2 * kStatistics);
  EXPECT_GE(peak_of_backward(out, kMap), 4 * kMap)
      << "the input, two convolutions, the gradient";
  EXPECT_EQ(arrived_, std::vector<int64_t>{kMap});
  EXPECT_EQ(buffers_.live_bytes(), 0);
}

}  // namespace
}  // namespace headroom::predict
