#include "parallel/predict/memory_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/parallel/predict/small_layers.h"

namespace headroom::predict {
namespace {

// A convolution of 16 channels at stride 2 and a head of 18 channels on it, for
// a float32 image of 64 x 64 pixels. In a flat buffer the parameters take 464
// and 306 times 4 bytes, and 64 bytes more for each of the head's 2 tensors;
// the other tensors fill their lines of 64 bytes.
constexpr int64_t kConvBytes = 464 * 4;
constexpr int64_t kHeadBytes = 306 * 4 + 2 * 64;
constexpr int64_t kImageBytes = 64 * 64 * 3 * 4;
constexpr int64_t kMapBytes = 32 * 32 * 16 * 4;
constexpr int64_t kStatisticsBytes = 2 * 16 * 8;
constexpr int64_t kObjectnessBytes = 32 * 32 * 3 * 4;

MemoryRequest small_request() {
  MemoryRequest request;
  request.layers = small_layers();
  request.plan.micro_batch_size = 1;
  request.plan.batch_norm_group_size = 1;
  request.plan.stage_begins = {0};
  request.image_height = request.image_width = 64;
  request.num_classes = 1;
  request.step = StepShape{1, 64, 64, {{0}}, 0};
  return request;
}

TEST(MemoryModel, ItemsOfOneProcess) {
  const MemoryEstimate estimate = estimate_rank_memory(small_request(), {});
  EXPECT_EQ(estimate.parameters, kConvBytes + kHeadBytes);
  EXPECT_EQ(estimate.gradients, estimate.parameters);
  EXPECT_EQ(estimate.accumulated_gradients, estimate.parameters);
  EXPECT_EQ(estimate.moments, estimate.parameters);
  EXPECT_EQ(estimate.average, estimate.parameters);
  EXPECT_EQ(estimate.statistics, 2 * 16 * 2 * 4 + 2 * 16 * 8);
  EXPECT_EQ(estimate.images, kImageBytes);
  EXPECT_EQ(estimate.activations,
            2 * kMapBytes + kStatisticsBytes + kObjectnessBytes);
  EXPECT_GT(estimate.transient, 0);
  EXPECT_EQ(estimate.communication, 0);
  EXPECT_EQ(estimate.targets, 0);
}

TEST(MemoryModel, AdamHasTwoMoments) {
  MemoryRequest request = small_request();
  request.num_moments = 2;
  EXPECT_EQ(estimate_rank_memory(request, {}).moments,
            2 * (kConvBytes + kHeadBytes));
}

// Each rank has half of the layers' 1,856 and 1,352 bytes, rounded up from 928
// and 676 bytes to lines of 64.
TEST(MemoryModel, ZeroThreeHoldsSlices) {
  MemoryRequest request = small_request();
  request.plan.layout.data_parallel_size = 2;
  request.plan.zero_stage = 3;
  request.global_batch_size = 2;
  request.step->global_size = 2;
  const MemoryEstimate estimate = estimate_rank_memory(request, {});
  EXPECT_EQ(estimate.parameters, 960 + 704);
  EXPECT_EQ(estimate.gradients, 960 + 704);
  EXPECT_EQ(estimate.accumulated_gradients, 960 + 704);
  EXPECT_EQ(estimate.moments, 960 + 704);
  EXPECT_EQ(estimate.average, 960 + 704);
  EXPECT_EQ(estimate.communication, 960) << "the largest slice";
}

// A match takes 64 bytes: an index of 5 numbers, a box of 4 elements and an
// anchor of 2. While the labels are unknown, 15 matches per box are assumed.
TEST(MemoryModel, MatchesAreBoundedUntilTheyAreKnown) {
  MemoryRequest request = small_request();
  request.labels.assumed_boxes_per_image = 100;
  request.step->batch_matches = 7;
  EXPECT_EQ(estimate_rank_memory(request, {}).targets, 7 * 64);
  const int64_t known = estimate_rank_memory(request, {}).total();
  request.step.reset();
  EXPECT_EQ(estimate_rank_memory(request, {}).targets, 1500 * 64);
  EXPECT_GT(estimate_rank_memory(request, {}).total(), known);
  request.labels.statistics = label_statistics({3, 8, 5});
  EXPECT_EQ(estimate_rank_memory(request, {}).targets, 8 * 15 * 64);
}

TEST(MemoryModel, AMicroBatchOfARankIsTheModels) {
  MemoryRequest request = small_request();
  request.plan.micro_batch_size = 2;
  request.plan.batch_norm_group_size = 2;
  request.global_batch_size = request.step->global_size = 4;
  request.step->matches = {{0}, {0}};
  const RankMicroBatch part = rank_micro_batch(request, {});
  EXPECT_EQ(part.shape.samples, 2);
  EXPECT_EQ(part.shape.groups, 1);
  EXPECT_EQ(part.stage.end, 2);
  EXPECT_EQ(part.num_in_flight, 1);
}

TEST(MemoryModel, StagesShareTheState) {
  MemoryRequest request = small_request();
  request.plan.layout.pipeline_parallel_size = 2;
  request.plan.stage_begins = {0, 1};
  request.step.reset();
  const std::vector<MemoryEstimate> stages = estimate_memory(request);
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_EQ(stages[0].parameters, kConvBytes);
  EXPECT_EQ(stages[1].parameters, kHeadBytes);
  EXPECT_EQ(largest_total(stages),
            std::max(stages[0].total(), stages[1].total()));
}

// Under every plan, the fullest part of a step has the peak that the estimate
// has for the rank.
TEST(StepTimeline, ItsFullestPartIsTheRanksEstimate) {
  MemoryRequest one = small_request();
  one.step.reset();
  MemoryRequest many = one;  // several micro-batches under ZeRO
  many.global_batch_size = 8;
  many.plan.layout.data_parallel_size = 2;
  many.plan.zero_stage = 3;
  MemoryRequest stages = one;
  stages.global_batch_size = 4;
  stages.plan.layout.pipeline_parallel_size = 2;
  stages.plan.stage_begins = {0, 1};
  MemoryRequest lean = many;
  lean.plan.activation_policies.assign(2, plan::ActivationPolicy::kRecompute);
  for (const MemoryRequest& request : {one, many, stages, lean}) {
    for (int rank = 0; rank < request.plan.layout.world_size(); ++rank) {
      const plan::MeshCoordinates at =
          plan::coordinates_of(request.plan.layout, rank);
      const StepTimeline timeline = step_timeline(request, at);
      EXPECT_EQ(timeline.peak_bytes, estimate_rank_memory(request, at).total());
      int64_t fullest = 0;
      for (const PartMemory& part : timeline.parts) {
        EXPECT_GE(part.kept_bytes, timeline.state_bytes);
        EXPECT_GE(part.scratch_bytes, 0);
        fullest = std::max(fullest, part.kept_bytes + part.scratch_bytes);
      }
      EXPECT_EQ(fullest, timeline.peak_bytes);
    }
  }
}

TEST(StepTimeline, LayersComeForwardThenTheLossThenLayersBackward) {
  const StepTimeline timeline = step_timeline(small_request(), {});
  std::vector<std::pair<StepPart, int64_t>> order;
  for (const PartMemory& part : timeline.parts) {
    if (part.layer >= 0) order.emplace_back(part.part, part.layer);
  }
  const std::vector<std::pair<StepPart, int64_t>> expected = {
      {StepPart::kForward, 0},
      {StepPart::kForward, 1},
      {StepPart::kLoss, 1},
      {StepPart::kBackward, 1},
      {StepPart::kBackward, 0}};
  EXPECT_EQ(order, expected);
  // The maps that a layer keeps are held until the layer's backward.
  EXPECT_GT(timeline.parts[2].kept_bytes, timeline.state_bytes);
  EXPECT_EQ(timeline.parts.back().kept_bytes, timeline.state_bytes);
}

}  // namespace
}  // namespace headroom::predict
