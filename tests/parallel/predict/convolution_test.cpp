#include "parallel/predict/convolution.h"

#include <gtest/gtest.h>

#include "parallel/predict/op_context.h"

namespace headroom::predict {
namespace {

// One rank has two float32 images of 32 x 32 pixels.
class Convolutions : public testing::Test {
 protected:
  static MicroBatchShape two_images() {
    MicroBatchShape shape;
    shape.samples = 2;
    shape.image_height = shape.image_width = 32;
    return shape;
  }
  // A 3x3 convolution of 16 to 32 channels. Its weight has 9 * 16 * 32 * 4 =
  // 18,432 bytes, both in the plain format and in blocks of 16 channels.
  static constexpr Convolution kThree = {16, 32, 3, 1, 1, true};
  static constexpr int64_t kWeight = 18'432;
  static constexpr int64_t kPrimitive = 8'344;

  MicroBatchShape shape_ = two_images();
};

TEST_F(Convolutions, WeightsAreReorderedIntoBlocks) {
  EXPECT_EQ(kThree.weight_bytes(shape_), kWeight);
  EXPECT_EQ(forward_scratch(kThree, shape_), kWeight + kPrimitive);
  EXPECT_EQ(input_gradient_scratch(kThree, shape_), kWeight + kPrimitive);
  EXPECT_EQ(weight_gradient_bytes(kThree, shape_), 3 * kWeight);
}

// The bytes were measured for oneDNN with AVX2 only. They are exact if maps are
// narrower than the kernel.
TEST_F(Convolutions, WithoutAvx512MoreIsHeldBesideThem) {
  shape_.onednn_isa = OnednnIsa::kAvx2;
  EXPECT_EQ(forward_scratch(kThree, shape_), kWeight + 12'464);
  EXPECT_EQ(weight_gradient_bytes(kThree, shape_), 3 * kWeight + 8'320);
  const Convolution wider = {64, 64, 3, 1, 1, true};
  EXPECT_EQ(forward_scratch(wider, shape_), 147'456 + 147'456 / 8 + 12'464);
  shape_.image_height = shape_.image_width = 2;
  const Convolution narrow = {128, 128, 3, 1, 1, true};
  EXPECT_EQ(weight_gradient_bytes(narrow, shape_), 2'969'984);
  shape_.num_threads = 2;
  EXPECT_EQ(weight_gradient_bytes(narrow, shape_), 5'349'760);
  shape_.samples = 0;  // a rank without images
  EXPECT_GT(weight_gradient_bytes(narrow, shape_), 0);
}

// The bytes were measured for oneDNN with AMX, on one image of 320 and of 1,280
// pixels.
TEST_F(Convolutions, WithAmxTheyTakeNoMoreThanItsBounds) {
  struct Seen {
    Convolution convolution;
    int64_t pixels, forward, input, weight;
  };
  const Seen all[] = {
      {{3, 16, 6, 2, 2}, 320, 2'452'888, 909'336, 1'683'080},
      {{16, 16, 3, 1, 4}, 320, 94'744, 94'872, 511'640},
      {{128, 256, 3, 2, 32}, 320, 991'256, 694'808, 2'179'736},
      {{512, 256, 1, 1, 32}, 320, 282'648, 290'968, 1'004'184},
      {{64, 255, 1, 1, 8}, 320, 53'272, 201'152, 703'128},
      {{80, 160, 3, 2, 4}, 1280, 1'792'024, 33'335'320, 1'579'664},
      {{640, 640, 3, 1, 32}, 1280, 8'380'440, 8'380'568, 22'579'864}};
  shape_.onednn_isa = OnednnIsa::kAmx;
  shape_.element_bytes = 2;
  shape_.samples = 1;
  for (const Seen& seen : all) {
    shape_.image_height = shape_.image_width = seen.pixels;
    const Convolution& of = seen.convolution;
    const auto is_bound = [&](int64_t bytes, int64_t taken) {
      return bytes >= taken && bytes <= taken * 21 / 20 + (3 << 20);
    };
    EXPECT_TRUE(is_bound(forward_scratch(of, shape_), seen.forward));
    EXPECT_TRUE(is_bound(input_gradient_scratch(of, shape_), seen.input));
    EXPECT_TRUE(is_bound(weight_gradient_bytes(of, shape_), seen.weight));
  }
}

// The bytes were measured for this shape only.
TEST_F(Convolutions, ADevicesLibraryTakesTheMeasuredBytes) {
  shape_.on_device = true;
  EXPECT_EQ(forward_scratch(kThree, shape_), 0);
  ConvolutionWorkspaces workspaces;
  shape_.workspaces = &workspaces;
  EXPECT_EQ(forward_scratch(kThree, shape_), 0);
  ConvolutionKey key = {false, 16, 32, 9, 1, 1, 2, 2 * 32 * 32, 4};
  workspaces.note(key, 5000);
  workspaces.note(key, 4000);
  key.is_backward = true;
  workspaces.note(key, 7000);
  EXPECT_EQ(forward_scratch(kThree, shape_), 5000);
  EXPECT_EQ(input_gradient_scratch(kThree, shape_), 7000);
  EXPECT_EQ(weight_gradient_bytes(kThree, shape_), kWeight + 7000);
  EXPECT_EQ(workspaces.num_shapes(), 2U);
  EXPECT_EQ(workspaces.largest_bytes(), 7000);
  const Convolution strided = {16, 32, 3, 2, 2, true};
  EXPECT_EQ(forward_scratch(strided, shape_), 0);
  shape_.element_bytes = 2;
  EXPECT_EQ(forward_scratch(kThree, shape_), 0);
}

// The library copies the input, the weight and the output's gradient. In
// forward, the output exists twice, which is more than the input and the weight
// if its map is larger.
TEST_F(Convolutions, ADevicesLibraryReadsCopiesOfFloat64) {
  shape_.on_device = true;
  shape_.element_bytes = 8;
  constexpr int64_t kInput = 2 * 32 * 32 * 16 * 8, kOutput = 2 * kInput;
  constexpr int64_t kWide = 2 * kWeight;
  EXPECT_EQ(forward_scratch(kThree, shape_), kOutput);
  EXPECT_EQ(input_gradient_scratch(kThree, shape_), kInput + kWide + kOutput);
  EXPECT_EQ(weight_gradient_bytes(kThree, shape_),
            kWide + kInput + kWide + kOutput);
  ConvolutionWorkspaces workspaces;
  shape_.workspaces = &workspaces;
  workspaces.note({false, 16, 32, 9, 1, 1, 2, 2 * 32 * 32, 8}, kOutput);
  EXPECT_EQ(forward_scratch(kThree, shape_), kInput + kWide + kOutput);
  // A 1x1 weight needs no copy, since its order is the same in both formats.
  const Convolution one = {32, 16, 1, 1, 1, true};
  EXPECT_EQ(forward_scratch(one, shape_), kOutput);
  // Rows received from other ranks are copied too.
  shape_.neighbours = 1;
  EXPECT_EQ(input_gradient_scratch(kThree, shape_),
            kInput + 2 * 2 * 32 * 16 * 8 + kWide + kOutput);
}

// For one sample, the gradient of the output has 16 x 16 cells and is padded to
// 18 x 18.
TEST_F(Convolutions, AStridedOneGathersAPaddedSample) {
  const Convolution strided = {16, 32, 3, 2, 2, true};
  EXPECT_EQ(input_gradient_scratch(strided, shape_),
            kWeight + kPrimitive + 32 * 18 * 18 * 4 + 32 * 1024);
}

TEST_F(Convolutions, DoublesAreUnfoldedIntoColumns) {
  shape_.element_bytes = 8;
  const int64_t columns = 2 * 32 * 32 * 9 * 16 * 8;
  EXPECT_EQ(forward_scratch(kThree, shape_), columns);
  EXPECT_EQ(weight_gradient_bytes(kThree, shape_), columns + 2 * kWeight);
}

// For one sample, the 16 channels of the input and the 32 channels of the
// gradient are transposed. A row has 34 pixels with the reach of the kernel,
// and 32 without.
TEST_F(Convolutions, WordsOf16BitsAreTurnedRound) {
  shape_.element_bytes = 2;
  EXPECT_EQ(kThree.weight_bytes(shape_), kWeight / 2);
  EXPECT_EQ(forward_scratch(kThree, shape_), kWeight / 2 + kPrimitive);
  EXPECT_EQ(weight_gradient_bytes(kThree, shape_),
            3 * kWeight / 2 + (9 << 10) + 2 * (34 * 16 * 32 + 32 * 32 * 32));
}

// In addition to an output of 16 bits, the input, the weight and the output are
// held in float32.
TEST_F(Convolutions, Float16IsConvolvedAsFloat32) {
  shape_.element_bytes = 2;
  shape_.convolves_in_float = true;
  const int64_t pixels = 2 * 32 * 32;
  EXPECT_EQ(forward_scratch(kThree, shape_), pixels * 16 * 4 + kWeight +
                                                 pixels * 32 * 4 + kWeight +
                                                 kPrimitive - pixels * 32 * 2);
}

// The bytes of the weight gradients were measured for oneDNN and are exact: 5x5
// groups of one channel, groups of 16 to 8 channels, and 3x3 groups of one
// channel.
TEST_F(Convolutions, GroupsFillBlocksOfTheirOwn) {
  shape_.image_height = shape_.image_width = 40;
  const Convolution five = {64, 64, 5, 1, 1, true, 64};
  EXPECT_EQ(five.weight_bytes(shape_), 6'400);
  EXPECT_EQ(forward_scratch(five, shape_), 6'400 + kPrimitive);
  EXPECT_EQ(weight_gradient_bytes(five, shape_), 1'651'200);
  const Convolution grouped = {128, 64, 3, 1, 1, true, 8};
  EXPECT_EQ(weight_gradient_bytes(grouped, shape_), 147'456);
  const Convolution three = {128, 128, 3, 1, 1, true, 128};
  EXPECT_EQ(weight_gradient_bytes(three, shape_), 13'824 + 128);
  shape_.element_bytes = 2;
  EXPECT_GE(weight_gradient_bytes(five, shape_), 9'347'464);
  EXPECT_LE(weight_gradient_bytes(five, shape_), 9'347'464 + 1'024);
}

TEST_F(Convolutions, AFewPixelsOfOneByOneTakeNoScratch) {
  const Convolution one = {16, 32, 1, 1, 4, true};  // 128 pixels
  EXPECT_EQ(forward_scratch(one, shape_), 0);
  EXPECT_EQ(weight_gradient_bytes(one, shape_), 16 * 32 * 4);
}

}  // namespace
}  // namespace headroom::predict
