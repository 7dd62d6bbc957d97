// Compares a rank's layers (stage), its step and the bytes of each layer
// (layer_costs) with bytes counted by hand.
#include "parallel/predict/simulated_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/predict/step.h"
#include "tests/parallel/predict/small_layers.h"

namespace headroom::predict {
namespace {

// A convolution of 16 channels at stride 2 and a head of 18
// channels on it (3 anchors, 1 class), on an image of 64 x 64 pixels, float32.
//
//   image         64 * 64 * 3 * 4   = 49,152 bytes
//   a map         32 * 32 * 16 * 4  = 65,536
//   statistics    2 * 16 * 8        = 256
//   objectness    32 * 32 * 3 * 4   = 12,288, of the loss without matches
constexpr int64_t kImageBytes = 49'152;
constexpr int64_t kMapBytes = 65'536;
constexpr int64_t kStatisticsBytes = 256;
constexpr int64_t kObjectnessBytes = 12'288;

SimulatedStage small_stage() {
  SimulatedStage stage;
  stage.layers = small_layers();
  stage.end = 2;
  return stage;
}

MicroBatchShape small_shape() {
  MicroBatchShape shape;
  shape.image_height = shape.image_width = 64;
  return shape;
}

LossShape loss_without_matches() { return {1, {0}, false}; }

int64_t kept_under(plan::ActivationPolicy policy) {
  SimulatedStage stage = small_stage();
  stage.policies.assign(2, policy);
  LiveBuffers buffers;
  MicroBatch micro_batch(buffers, stage, small_shape(), loss_without_matches());
  micro_batch.forward({});
  const int64_t kept = buffers.live_bytes();
  micro_batch.backward({});
  EXPECT_EQ(buffers.live_bytes(), 0);
  return kept;
}

TEST(MicroBatch, KeepsTensorsByItsPolicies) {
  EXPECT_EQ(kept_under(plan::ActivationPolicy::kKeep),
            kImageBytes + 2 * kMapBytes + kStatisticsBytes + kObjectnessBytes);
  EXPECT_EQ(kept_under(plan::ActivationPolicy::kLean),
            kImageBytes + kMapBytes + kStatisticsBytes + 2 * 16 * 4 +
                kObjectnessBytes)
      << "the output is derived from copies of the norm's parameters";
  EXPECT_EQ(kept_under(plan::ActivationPolicy::kRecompute),
            kImageBytes + kMapBytes + kStatisticsBytes + kObjectnessBytes)
      << "the convolution goes, the head keeps its input";
}

TEST(MicroBatch, LayersBeginInOrderAndEndInReverse) {
  const SimulatedStage stage = small_stage();
  LiveBuffers buffers;
  MicroBatch micro_batch(buffers, stage, small_shape(), loss_without_matches());
  std::vector<int64_t> layers;
  micro_batch.before_layer = [&](int64_t layer) { layers.push_back(layer); };
  micro_batch.forward({});
  micro_batch.backward({});
  EXPECT_EQ(layers, (std::vector<int64_t>{0, 1, 1, 0}));
}

TEST(MicroBatch, MapsAndGradientsCrossAStagesEdges) {
  SimulatedStage first = small_stage(), last = first;
  first.end = last.begin = 1;
  EXPECT_EQ(first.sent(), std::vector<int>{0});
  EXPECT_EQ(last.received(), std::vector<int>{0});
  EXPECT_TRUE(first.received().empty());
  EXPECT_TRUE(last.sent().empty());
  LiveBuffers buffers;
  MicroBatch front(buffers, first, small_shape(), {});
  const std::vector<Memory> sent = front.forward({});
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent.front()->bytes, kMapBytes);
  MicroBatch back(buffers, last, small_shape(), loss_without_matches());
  back.forward(sent);
  std::vector<Memory> gradients = back.backward({});
  ASSERT_EQ(gradients.size(), 1U);
  EXPECT_EQ(gradients.front()->bytes, kMapBytes);
  front.backward(std::move(gradients));
}

// The convolution has 464 parameters, the head 306.
TEST(FlatBytes, HeadsMayNeedPaddingAndSlicesAreAligned) {
  const SimulatedStage stage = small_stage();
  EXPECT_EQ(flat_bytes(stage.layers[1], 4), 306 * 4 + 2 * 64);
  EXPECT_EQ(slice_bytes(stage.layers[1], 4, 2), 704) << "676 in lines of 64";
  layers::LayerCost wide = stage.layers[0];
  wide.channels = 32;  // 16 channels fill a line
  EXPECT_EQ(flat_bytes(wide, 4), 464 * 4);
  EXPECT_EQ(slice_bytes(wide, 4, 3), 640) << "619 in lines of 64";
}

StepRequest request_of(size_t micro_batches) {
  StepRequest request;
  request.stage = small_stage();
  request.micro_batches.assign(micro_batches, small_shape());
  request.losses.assign(micro_batches, loss_without_matches());
  return request;
}

TEST(StepMemory, OneMicroBatchIsHeldAtATime) {
  const StepMemory one = step_memory(request_of(1));
  EXPECT_EQ(one.kept_bytes,
            kImageBytes + 2 * kMapBytes + kStatisticsBytes + kObjectnessBytes);
  EXPECT_GT(one.peak_bytes, one.kept_bytes);
  EXPECT_EQ(step_memory(request_of(3)).peak_bytes, one.peak_bytes);
}

// The image, the convolution and its statistics are kept. The output is sent to
// the second stage, and held until that stage has replied.
TEST(StepMemory, AFirstStageHoldsTwoMicroBatchesAndItsMessages) {
  StepRequest request = request_of(4);
  request.stage.end = 1;
  request.stage_begins = {0, 1};
  const StepMemory first = step_memory(request);
  const int64_t own = kImageBytes + kMapBytes + kStatisticsBytes;
  EXPECT_EQ(first.kept_bytes, own + kMapBytes) << "sent, not answered";
  EXPECT_GE(first.peak_bytes, 2 * (own + kMapBytes));
  EXPECT_LT(first.peak_bytes, 3 * own + 3 * kMapBytes);
}

TEST(MemoryByPolicy, OfTwoLayers) {
  const std::vector<MemoryByPolicy> costs = layer_memory_by_policy(
      small_stage(), small_shape(), loss_without_matches());
  ASSERT_EQ(costs.size(), 2U);
  const auto kept = [&](size_t layer, plan::ActivationPolicy policy) {
    return costs[layer][static_cast<size_t>(policy)].kept_bytes;
  };
  const int64_t once = kImageBytes + kMapBytes + kStatisticsBytes;
  EXPECT_EQ(kept(0, plan::ActivationPolicy::kKeep), once + kMapBytes);
  EXPECT_EQ(kept(0, plan::ActivationPolicy::kLean), once + 2 * 16 * 4);
  EXPECT_EQ(kept(0, plan::ActivationPolicy::kRecompute), once);
  EXPECT_EQ(kept(0, plan::ActivationPolicy::kOffload), kStatisticsBytes);
  EXPECT_EQ(kept(1, plan::ActivationPolicy::kKeep), kObjectnessBytes);
  EXPECT_EQ(kept(1, plan::ActivationPolicy::kRecompute), kObjectnessBytes);
}

// The peak of the stage is the maximum over its layers of the layer's own peak
// plus the bytes that earlier layers keep.
TEST(MemoryByPolicy, SumUpToThePeakOfTheStage) {
  for (const plan::ActivationPolicy policy :
       {plan::ActivationPolicy::kKeep, plan::ActivationPolicy::kLean,
        plan::ActivationPolicy::kRecompute, plan::ActivationPolicy::kOffload}) {
    StepRequest request;
    request.stage = small_stage();
    request.stage.policies.assign(2, policy);
    request.micro_batches = {small_shape()};
    request.losses = {loss_without_matches()};
    int64_t before = 0, peak = 0;
    for (const MemoryByPolicy& layer : layer_memory_by_policy(
             small_stage(), small_shape(), loss_without_matches())) {
      const LayerMemory& cost = layer[static_cast<size_t>(policy)];
      EXPECT_GE(cost.peak_bytes, cost.kept_bytes);
      peak = std::max(peak, before + cost.peak_bytes);
      before += cost.kept_bytes;
    }
    EXPECT_EQ(peak, step_memory(request).peak_bytes)
        << static_cast<int>(policy);
  }
}

}  // namespace
}  // namespace headroom::predict
