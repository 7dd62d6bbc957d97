// Compares the memory of an evaluation with bytes counted by hand.
#include "parallel/predict/phase_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/parallel/predict/small_layers.h"

namespace headroom::predict {
namespace {

// The stage is only a head: 18 channels on a received map of 16, at stride 2,
// for one float32 image of 64 x 64 pixels.
constexpr int64_t kMapBytes = 32 * 32 * 16 * 4;
constexpr int64_t kHeadBytes = 32 * 32 * 18 * 4;

EvaluationRequest head_request() {
  EvaluationRequest request;
  request.stage.layers = small_layers();
  request.stage.begin = 1;
  request.stage.end = 2;
  request.shape.image_height = request.shape.image_width = 64;
  request.whole_image_height = 64;
  request.loss = {1, {0}, false};
  return request;
}

// The peak is the head's scratch, or its output together with boxes of the same
// size.
TEST(Evaluation, BoxesAreHeldBesideTheHeads) {
  EXPECT_EQ(evaluation_peak_bytes(head_request()), 2 * kHeadBytes);
}

TEST(Evaluation, InDoubleBoxesAreCopiedToFloat) {
  EvaluationRequest request = head_request();
  request.shape.element_bytes = 8;
  EXPECT_EQ(evaluation_peak_bytes(request), 2 * 2 * kHeadBytes + kHeadBytes);
}

TEST(Evaluation, PartsOfHeadsAreJoinedOnTheFirstRank) {
  EvaluationRequest request = head_request();
  request.shape.neighbours = 1;
  request.shape.image_height = 32;
  const int64_t own = kHeadBytes / 2;
  // These are held at the same time: the rank's own part and a copy of it, the
  // other rank's part, and all parts joined.
  EXPECT_EQ(evaluation_peak_bytes(request), own + kHeadBytes + kHeadBytes);
  request.spatial_rank = 1;
  EXPECT_EQ(evaluation_peak_bytes(request),
            std::max(kMapBytes / 2 + own, 2 * own));
}

// Decoding holds all rows, the distances, and a softmax or all probabilities
// of a level.
TEST(Evaluation, WithoutAnchorsRowsAreDecodedFromDistances) {
  EvaluationRequest request = head_request();
  const layers::MapShape input = {16, 2};
  layers::LayerProgram box, cls;
  box.inputs = cls.inputs = {input};
  box.run_block(box.declare_output_conv("", 16, 64, 0), 0);
  cls.run_block(cls.declare_output_conv("", 16, 3, 0), 0);
  layers::LayerCost branch = request.stage.layers[0];
  branch.inputs = {0};
  branch.program = std::make_shared<const layers::LayerProgram>(box);
  branch.channels = 64;
  layers::LayerCost other = branch;
  other.program = std::make_shared<const layers::LayerProgram>(cls);
  other.channels = 3;
  layers::LayerCost detect;
  detect.inputs = {1, 2};
  detect.stride = 2;
  detect.channels = 67;
  request.stage.layers = {request.stage.layers[0], branch, other, detect};
  request.stage.end = 4;
  request.loss = {3, {}, false};
  request.loss.has_anchors = false;
  constexpr int64_t kChannel = 32 * 32 * 4;
  EXPECT_EQ(evaluation_peak_bytes(request),
            (64 + 3) * kChannel + (5 + 3) * kChannel + (4 + 64) * kChannel);
}

// For such a small image, the convolution unfolds the windows: 27 values per
// cell.
TEST(Evaluation, AStageThatSendsHoldsItsMaps) {
  EvaluationRequest request = head_request();
  request.stage.begin = 0;
  request.stage.end = 1;
  const int64_t image = 64 * 64 * 3 * 4;
  EXPECT_EQ(evaluation_peak_bytes(request),
            image + kMapBytes + 32 * 32 * 27 * 4);
}

// From ZeRO 1 on, the averages are gathered layer by layer.
TEST(Evaluation, GatheredLayersAreAdded) {
  EvaluationRequest request = head_request();
  request.stage.begin = 0;
  request.stage.end = 1;
  const int64_t alone = evaluation_peak_bytes(request);
  request.stage.zero_stage = 1;
  request.stage.num_shards = 2;
  EXPECT_EQ(evaluation_peak_bytes(request),
            alone + 2 * slice_bytes(request.stage.layers[0], 4, 2));
}

}  // namespace
}  // namespace headroom::predict
