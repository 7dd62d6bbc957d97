#include "parallel/predict/layers.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/parallel/predict/op_context_fixture.h"

namespace headroom::predict {
namespace {

// Counts the bytes that a layer keeps on maps of stride 4, in units of one
// channel, which has 512 bytes.
class Layers : public PassFixture {
 protected:
  static constexpr int64_t kChannel = 2 * 8 * 8 * 4;

  static layers::LayerCost layer(layers::LayerProgram program) {
    layers::LayerCost layer;
    layer.channels = program.output().channels;
    layer.stride = program.output().stride;
    layer.program =
        std::make_shared<const layers::LayerProgram>(std::move(program));
    return layer;
  }
  static layers::LayerProgram on(std::vector<layers::MapShape> inputs) {
    layers::LayerProgram program;
    program.inputs = std::move(inputs);
    return program;
  }
  static int block(layers::LayerProgram& program, int x, int64_t channels,
                   int64_t kernel = 1) {
    return program.run_block(
        program.declare_conv({"", program.shape_of(x).channels, channels,
                              kernel, 1, kernel / 2}),
        x);
  }
  // The live bytes, including the inputs, but without the layer's outputs.
  int64_t kept(const layers::LayerCost& layer, const std::vector<Map>& inputs) {
    const std::vector<Map> outputs = run_layer(context(), layer, inputs);
    int64_t own = 0;
    for (const Map& output : outputs) own += output.memory->bytes;
    return buffers_.live_bytes() - own;
  }
  // The bytes of the batch-norm statistics of `channels` channels.
  static int64_t statistics(int64_t channels) { return 2 * channels * 8; }
};

// Kept are the input, the convolutions of four blocks, the outputs of the first
// block and of the bottleneck's inner block, and the concatenation.
TEST_F(Layers, C3) {
  layers::LayerProgram c3 = on({{32, 4}});
  const int y = block(c3, 0, 16);
  const int deep = c3.add(y, block(c3, block(c3, y, 16), 16, 3));
  block(c3, c3.concatenate({deep, block(c3, 0, 16)}), 32);
  EXPECT_EQ(kept(layer(c3), {map(32, 4)}),
            (32 + 16 + 16 + 16 + 16 + 16 + 16 + 32 + 32) * kChannel +
                statistics(4 * 16 + 32));
}

// Kept are the input, the first convolution and its output, two pooled maps,
// indices that are twice as wide, the concatenation, and the last convolution.
TEST_F(Layers, Sppf) {
  layers::LayerProgram sppf = on({{32, 4}});
  block(sppf, sppf.pools(block(sppf, 0, 16), {5, 5, 5}), 32);
  EXPECT_EQ(kept(layer(sppf), {map(32, 4)}),
            (32 + 16 + 16 + 2 * 16 + 3 * 2 * 16 + 64 + 32) * kChannel +
                statistics(16 + 32));
}

TEST_F(Layers, Conv) {
  layers::LayerProgram conv = on({{32, 4}});
  block(conv, 0, 16);
  EXPECT_EQ(kept(layer(conv), {map(32, 4)}),
            (32 + 16) * kChannel + statistics(16));
}

TEST_F(Layers, AHeadKeepsItsInputs) {
  const std::vector<Map> inputs = {map(32, 4), map(64, 8)};
  layers::LayerCost detect;
  detect.channels = 36;
  detect.parameters = (32 + 64 + 2) * 18;
  const std::vector<Map> heads = run_layer(context(), detect, inputs);
  ASSERT_EQ(heads.size(), 2U);
  EXPECT_EQ(heads[0].memory->bytes, 18 * kChannel);
  EXPECT_EQ(heads[1].memory->bytes, 18 * kChannel / 4);
  EXPECT_EQ(buffers_.live_bytes(),
            (32 + 16) * kChannel + (18 * kChannel + 18 * kChannel / 4));
}

// A head of 255 channels on 64 channels, for two images of 320 x 320 pixels.
// The bytes of the head's backward, in addition to its input and its output's
// gradient, were measured; the model adds a row of sums, a 32nd of the weight
// in blocks.
TEST_F(Layers, AHeadOfFloat16IsConvolvedOnOneDnn) {
  shape_.image_height = shape_.image_width = 320;
  shape_.element_bytes = 2;
  shape_.convolves_in_float = true;
  Map x = made_map(64, 8);
  layers::LayerCost detect;
  detect.channels = 255;
  detect.parameters = 65 * 255;
  Map head = std::move(run_layer(context(), detect, {x}).front());
  const int64_t head_bytes = head.memory->bytes;
  head.memory = nullptr;
  constexpr int64_t kMeasured = 6'796'796;
  EXPECT_EQ(peak_of_backward(head, head_bytes),
            x.memory->bytes + head_bytes + kMeasured + 256 * 64 * 4 / 32);
}

// Kept are the input and, for two samples, the means, the squeezed values and
// the factors.
TEST_F(Layers, AnExcitationKeepsItsInputAndLittleElse) {
  layers::LayerProgram squeeze_excite = on({{32, 4}});
  squeeze_excite.run_block(squeeze_excite.declare_squeeze_excite("", 32, 8), 0);
  EXPECT_EQ(kept(layer(squeeze_excite), {map(32, 4)}),
            32 * kChannel + 2 * (32 + 8 + 32) * 4);
}

// For the sum, a device copies the map to float64; here both samples fit into
// one copy.
TEST_F(Layers, AnExcitationOnADeviceCopiesItsInputForTheSum) {
  layers::LayerProgram squeeze_excite = on({{32, 1}});
  squeeze_excite.run_block(squeeze_excite.declare_squeeze_excite("", 32, 8), 0);
  const auto peak = [&](int64_t element_bytes, bool on_device) {
    shape_.element_bytes = element_bytes;
    shape_.on_device = on_device;
    const Map x = map(32, 1);
    buffers_.reset_peak();
    const int64_t before = buffers_.live_bytes();
    // The copy is freed before the output is allocated.
    const auto outputs = run_layer(context(), layer(squeeze_excite), {x});
    return buffers_.peak_bytes() - before;
  };
  const int64_t elements = 2 * 32 * 32 * 32;
  const int64_t sums = 2 * 32 * 8;
  const int64_t output = elements * 4 + 2 * (32 + 8 + 32) * 4 + sums;
  EXPECT_EQ(peak(4, false), output);
  EXPECT_EQ(peak(4, true), elements * 8);
  EXPECT_EQ(peak(8, true), peak(8, false)) << "nothing to copy";
}

// Only the inputs remain, which the test holds.
TEST_F(Layers, ResamplingLayersKeepNothing) {
  layers::LayerProgram concat = on({{32, 4}, {16, 4}});
  concat.concatenate({0, 1});
  EXPECT_EQ(kept(layer(concat), {map(32, 4), map(16, 4)}),
            (32 + 16) * kChannel);
  layers::LayerProgram upsample = on({{32, 8}});
  upsample.upsample(0);
  EXPECT_EQ(kept(layer(upsample), {map(32, 8)}), 32 * kChannel / 4);
  layers::LayerProgram fold = on({{32, 4}});
  fold.fold(0);
  EXPECT_EQ(kept(layer(fold), {map(32, 4)}), 32 * kChannel);
}

}  // namespace
}  // namespace headroom::predict
