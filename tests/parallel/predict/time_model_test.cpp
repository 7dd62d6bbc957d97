#include "parallel/predict/time_model.h"

#include <gtest/gtest.h>

namespace headroom::predict {
namespace {

// A chain of four equal layers; a unit of work and a byte take one nanosecond
// each.
TimeRequest four_layers() {
  TimeRequest request;
  for (int i = 0; i < 4; ++i) {
    TimedLayer layer;
    layer.work_per_pixel = 30;
    layer.parameters = 1000;
    layer.channels = 8;
    layer.stride = 2;
    layer.halo_channel_rows = 16;
    layer.halo_exchanges = 1;
    layer.norm_layers = 1;
    layer.inputs = {i - 1};
    request.layers.push_back(layer);
  }
  request.global_batch_size = 8;
  request.image_height = 64;
  request.image_width = 32;
  request.plan.micro_batch_size = 8;
  request.plan.batch_norm_group_size = 1;
  request.device = {1e9, {1e9, 0}, {1e9, 0}};
  return request;
}

TEST(TimeModel, OneProcessComputesAndNeverWaits) {
  const StepEstimate step = estimate_step(four_layers());
  // 4 layers x 30 units x 64 x 32 pixels x 8 images.
  EXPECT_DOUBLE_EQ(step.compute, 1e-9 * 4 * 30 * 64 * 32 * 8);
  EXPECT_EQ(step.communication, 0);
}

TEST(TimeModel, DataRanksShareTheWorkAndSumTheGradients) {
  TimeRequest request = four_layers();
  const double alone = estimate_step(request).compute;
  request.plan.layout.data_parallel_size = 2;
  request.plan.micro_batch_size = 4;
  const StepEstimate step = estimate_step(request);
  EXPECT_DOUBLE_EQ(step.compute, alone / 2);
  // There are 4,000 parameters of 4 bytes. A ring of two ranks sends each half
  // of them twice.
  EXPECT_DOUBLE_EQ(step.communication, 1e-9 * 4 * 4000);
  request.plan.zero_stage = 3;
  EXPECT_GT(estimate_step(request).communication, step.communication);
}

TEST(TimeModel, APipelineOfMoreMicroBatchesWaitsLess) {
  TimeRequest request = four_layers();
  const double alone = estimate_step(request).compute;
  request.plan.layout.pipeline_parallel_size = 2;
  request.plan.stage_begins = {0, 2};
  const StepEstimate one = estimate_step(request);
  EXPECT_DOUBLE_EQ(one.compute, alone);  // the stages run one after the other
  request.plan.micro_batch_size = 2;
  const StepEstimate four = estimate_step(request);
  EXPECT_DOUBLE_EQ(four.compute, alone / 2 * 5 / 4);
  // The bytes are those of layer 1's map and of its gradient: 8 channels at
  // stride 2.
  EXPECT_DOUBLE_EQ(four.communication, 1e-9 * 2 * 8 * 8 * (64 * 32 / 4) * 4);
  request.plan.stage_begins = {0, 1};  // the time of the slower stage
  EXPECT_DOUBLE_EQ(estimate_step(request).compute, alone * 3 / 4 * 5 / 4);
}

TEST(TimeModel, RanksOfAnImageExchangeItsHalos) {
  TimeRequest request = four_layers();
  request.device.sums.latency_seconds = 1e-3;
  request.device.messages.latency_seconds = 1e-3;
  const double alone = estimate_step(request).compute;
  request.plan.layout.spatial_parallel_size = 2;
  const StepEstimate step = estimate_step(request);
  EXPECT_DOUBLE_EQ(step.compute, alone / 2);
  const double halos = 1e-9 * 2 * 8 * 4 * (16 * 16) * 4;
  const double latencies = 1e-3 * 2 * (4 + 4);
  const double gradients = 1e-9 * 4 * 4000 + 2e-3;
  EXPECT_NEAR(step.communication, halos + latencies + gradients, 1e-12);
  // Some ranks have two neighbours.
  request.plan.layout.spatial_parallel_size = 4;
  EXPECT_GT(estimate_step(request).communication, step.communication);
}

// Sums take the link of NCCL, and messages between two ranks another one.
TEST(TimeModel, MessagesHaveTheirOwnLink) {
  TimeRequest request = four_layers();
  request.device.messages = {1e8, 0};
  request.plan.layout.data_parallel_size = 2;
  request.plan.micro_batch_size = 4;
  EXPECT_DOUBLE_EQ(estimate_step(request).communication, 1e-9 * 4 * 4000);
  request.plan.layout = {.pipeline_parallel_size = 2,
                         .data_parallel_size = 1,
                         .spatial_parallel_size = 1};
  request.plan.stage_begins = {0, 2};
  EXPECT_DOUBLE_EQ(estimate_step(request).communication,
                   1e-8 * 2 * 8 * 8 * (64 * 32 / 4) * 4);
}

// Under ZeRO no rank has the whole state, so each sends its half of the weights
// (16,000 bytes), of the momentum and of the average to a peer while the next
// step computes.
TEST(TimeModel, CardsCopyStateThatOnlyOneRankHas) {
  TimeRequest request = four_layers();
  request.plan.layout.data_parallel_size = 2;
  request.plan.micro_batch_size = 4;
  request.device.is_card = true;
  request.device.copies = {1e9, 0};
  const auto copies = [&](int zero_stage) {
    request.plan.zero_stage = zero_stage;
    return estimate_step(request).stages.front().copies;
  };
  EXPECT_EQ(copies(0), 0);
  request.device.work_per_second = 1e30;
  EXPECT_NEAR(copies(1), 1e-9 * 16000 * 1.5, 1e-12);
  EXPECT_NEAR(copies(3), 1e-9 * 16000 * 1.5, 1e-12);
  request.device.work_per_second = 1;
  EXPECT_EQ(copies(1), 0);
  request.device.work_per_second = 1e30;
  request.device.is_card = false;
  EXPECT_EQ(copies(1), 0);
}

TEST(TimeModel, MoreImagesTakeLonger) {
  TimeRequest request = four_layers();
  request.plan.layout.data_parallel_size = 2;
  request.plan.micro_batch_size = 4;
  const double before = estimate_step(request).total();
  request.global_batch_size = 16;
  request.plan.micro_batch_size = 8;
  EXPECT_GT(estimate_step(request).total(), before);
}

}  // namespace
}  // namespace headroom::predict
