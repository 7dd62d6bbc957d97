#include "parallel/predict/phase_memory.h"

#include <gtest/gtest.h>

#include "tests/parallel/predict/small_layers.h"

namespace headroom::predict {
namespace {

// A convolution of 16 channels at stride 2, and a head of 18 channels on it (3
// anchors, 1 class), for float32 images of 64 x 64 pixels.
constexpr int64_t kConvParameters = 9 * 3 * 16 + 2 * 16;
constexpr int64_t kHeadParameters = 16 * 18 + 18;

MemoryRequest small_request() {
  MemoryRequest request;
  request.layers = small_layers();
  request.plan.micro_batch_size = request.plan.batch_norm_group_size = 1;
  request.image_height = request.image_width = 64;
  request.num_classes = 1;
  request.plan.validation_images = 1;
  request.labels.assumed_boxes_per_image = 0;
  return request;
}

// One image of 66 x 66 pixels gives a map of 33 x 33 cells. While the head
// runs, the image and the head's input and output are held; after that, boxes
// are held together with the head's output.
TEST(PhaseMemory, AValidationKeepsNothing) {
  const MemoryRequest request = small_request();
  const MemoryEstimate estimate = estimate_validation(request, {});
  EXPECT_EQ(estimate.images, 66 * 66 * 3 * 4);
  EXPECT_EQ(estimate.activations, 0);
  const int64_t cells = 33 * 33;
  // The outputs of the convolution and of the block are held, and the
  // statistics.
  EXPECT_GE(estimate.images + estimate.transient,
            estimate.images + 2 * cells * 16 * 4);
  EXPECT_LE(estimate.transient, 2 * cells * 16 * 4 + (64 << 10));
  EXPECT_EQ(estimate.parameters, estimate_checkpoint(request, {}).parameters);
}

TEST(PhaseMemory, AStepHoldsMoreThanAValidationOfItsImages) {
  MemoryRequest request = small_request();
  request.validation = ValidationShape{1, 64, 64, {0}};
  EXPECT_LT(estimate_validation(request, {}).total(),
            estimate_rank_memory(request, {}).total());
}

TEST(PhaseMemory, WithoutValidationTheStateIsAllThereIs) {
  MemoryRequest request = small_request();
  request.plan.validation_images = 0;
  EXPECT_EQ(estimate_validation(request, {}).total(),
            estimate_checkpoint(request, {}).total());
}

TEST(PhaseMemory, MatchesOfTheLabelsCountInTheLoss) {
  MemoryRequest request = small_request();
  request.num_classes = 80;
  request.layers.back().channels = 255;
  request.validation = ValidationShape{1, 64, 64, {0}};
  const int64_t empty = estimate_validation(request, {}).total();
  request.validation->matches = {4000};
  // The loss holds the logits of 80 classes and 3 maps of the same size.
  EXPECT_GE(estimate_validation(request, {}).total(),
            empty - (4 << 20) + 4000 * 80 * 4 * 4);
}

// At the start the model exists three times: twice as a model, and once in the
// flat buffers.
TEST(PhaseMemory, AtTheStartAModelIsHeldThreeTimes) {
  MemoryRequest request = small_request();
  const MemoryEstimate start = estimate_start_up(request, {});
  EXPECT_GE(start.total(), 3 * (kConvParameters + kHeadParameters) * 4);
  // If nothing is sharded, the state at the start is the peak.
  EXPECT_LE(start.transient, 32 << 10);
}

// The newest memory of a start is that of the largest layer of the checkpoint
// and its largest tensor.
TEST(PhaseMemory, SqueezeAndExcitationHasTwoWeights) {
  MemoryRequest request = small_request();
  request.resumes = true;
  const auto start_with = [&](int64_t weights) {
    layers::LayerProgram program;
    program.inputs = {{512, 2}};
    program.run_block(program.declare_squeeze_excite("", 512, 128), 0);
    auto& parameters = program.blocks.front().parameters;
    if (weights == 1) parameters = {2 * 512 * 128, 512 + 128};
    layers::LayerCost& layer = request.layers.front();
    layer.parameters = 2 * 512 * 128 + 512 + 128;
    layer.program =
        std::make_shared<const layers::LayerProgram>(std::move(program));
    return estimate_start_up(request, {}).total();
  };
  EXPECT_EQ(start_with(1) - start_with(2), 512 * 128 * 4);
}

TEST(PhaseMemory, ARankWithSlicesStillStartsWithTheWholeModel) {
  MemoryRequest request = small_request();
  for (layers::LayerCost& layer : request.layers) layer.parameters <<= 10;
  request.plan.layout.data_parallel_size = 4;
  request.plan.zero_stage = 3;
  request.global_batch_size = 4;
  const int64_t whole = (kConvParameters + kHeadParameters) * 4 << 10;
  const MemoryEstimate start = estimate_start_up(request, {});
  EXPECT_GE(start.total(), 2 * whole);
  EXPECT_GT(start.total(), estimate_checkpoint(request, {}).total() + whole);
}

TEST(PhaseMemory, ACheckpointHoldsTheMemoryBetweenSteps) {
  const MemoryRequest request = small_request();
  const MemoryEstimate estimate = estimate_checkpoint(request, {});
  EXPECT_EQ(estimate.transient, 0);
  EXPECT_EQ(estimate.activations, 0);
  EXPECT_LT(estimate.total(), estimate_rank_memory(request, {}).total());
}

TEST(PhaseMemory, FrozenLayersKeepNothing) {
  MemoryRequest request = small_request();
  const MemoryEstimate learning = estimate_rank_memory(request, {});
  request.num_frozen_layers = 1;
  const MemoryEstimate frozen = estimate_rank_memory(request, {});
  EXPECT_LT(frozen.activations + frozen.images,
            learning.activations + learning.images);
  EXPECT_EQ(frozen.parameters, learning.parameters);
  EXPECT_EQ(frozen.moments, learning.moments) << "buffers are flat";
}

}  // namespace
}  // namespace headroom::predict
