#include "parallel/predict/forecast.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::predict {
namespace {

// Ten equal layers with 2 MiB of gradients each, and eight images per card; a
// layer needs 1 ms per image. Each machine has eight cards.
ForecastRequest on_machines(int64_t machines, int64_t cards_each = 8) {
  ForecastRequest request;
  for (int i = 0; i < 10; ++i) {
    TimedLayer layer;
    layer.work_per_pixel = 1e-3 / (64 * 64);
    layer.parameters = 1 << 19;
    layer.channels = 8;
    layer.stride = 2;
    layer.norm_layers = 1;
    layer.inputs = {i - 1};
    request.step.layers.push_back(layer);
  }
  request.step.image_height = request.step.image_width = 64;
  request.machines = {.number = machines,
                      .cards_each = cards_each,
                      .inside = {400e9, 4e-6},
                      .between = {10e9, 20e-6}};
  const auto cards = static_cast<int>(request.machines.cards());
  request.step.global_batch_size = 8 * cards;
  request.step.plan.layout.data_parallel_size = cards;
  request.step.plan.micro_batch_size = 8;
  request.step.plan.batch_norm_group_size = 8;
  return request;
}

TEST(Forecast, OneProcessComputesAndNothingElse) {
  const StepForecast step = forecast_step(on_machines(1, 1));
  EXPECT_NEAR(step.compute, 8 * 10 * 1e-3, 1e-12);
  EXPECT_EQ(step.communication, 0);
  EXPECT_EQ(step.hidden_communication, 0);
  EXPECT_EQ(step.bubble, 0);
  EXPECT_EQ(step.input, 0);
  EXPECT_DOUBLE_EQ(step.efficiency(), 1);
}

TEST(Forecast, AFasterLinkNeverMakesAStepLonger) {
  for (const bool overlaps : {true, false}) {
    double before = INFINITY;
    for (double rate = 1e7; rate < 1e12; rate *= 2) {
      ForecastRequest request = on_machines(4);
      request.overlaps = overlaps;
      request.machines.between.bytes_per_second = rate;
      const StepForecast step = forecast_step(request);
      EXPECT_LE(step.seconds(), before) << rate;
      EXPECT_GT(step.efficiency(), 0);
      EXPECT_LE(step.efficiency(), 1);
      before = step.seconds();
    }
  }
}

TEST(Forecast, MoreMachinesNeverRaiseTheEfficiency) {
  double before = 1;
  for (int64_t machines = 1; machines <= 512; machines *= 2) {
    const double efficiency = forecast_step(on_machines(machines)).efficiency();
    EXPECT_LE(efficiency, before) << machines;
    before = efficiency;
  }
}

TEST(Forecast, BackwardHidesSumsThatFitIntoIt) {
  ForecastRequest request = on_machines(2);
  const StepForecast hidden = forecast_step(request);
  // The sums of both buckets, which contain all layers but the last ones, are
  // finished before backward ends.
  EXPECT_GT(hidden.hidden_communication, hidden.communication);
  request.overlaps = false;
  const StepForecast exposed = forecast_step(request);
  EXPECT_EQ(exposed.hidden_communication, 0);
  EXPECT_NEAR(exposed.communication,
              hidden.communication + hidden.hidden_communication, 1e-12);
}

TEST(Forecast, ASlowNetworkIsExposedButForBackward) {
  ForecastRequest request = on_machines(2, 1);
  request.machines.between = {1e6, 0};
  const StepForecast step = forecast_step(request);
  // Each card sends and receives 20 MiB, half of it at a time. Backward takes
  // two thirds of 80 ms and hides a part of this, from the start of the first
  // bucket.
  const double all = 20.0 * (1 << 20) / 1e6;
  EXPECT_LT(step.communication, all + 0.1);
  EXPECT_GT(step.communication, all - 80e-3 * 2 / 3);
}

TEST(Forecast, TheHierarchyWinsOnManyMachinesAndIsNeverWorseThanChosen) {
  for (int64_t machines = 1; machines <= 512; machines *= 2) {
    for (const double bytes : {1e3, 1e6, 1e8, 1e10}) {
      const Machines all = on_machines(machines).machines;
      const SumTime time = sum_time(all, all.cards(), bytes);
      EXPECT_EQ(time.least(), std::min(time.flat, time.hierarchical));
      if (machines == 1) {
        EXPECT_EQ(time.flat, time.hierarchical);
      }
    }
  }
  const Machines many = on_machines(512).machines;
  const SumTime time = sum_time(many, many.cards(), 28.9e6);
  EXPECT_TRUE(time.prefers_hierarchy());
  // A ring of 4,096 cards waits for 8,190 messages, one after another, of 20 us
  // each.
  EXPECT_GT(time.flat, 8190 * 20e-6);
  EXPECT_LT(time.hierarchical, 0.05 * time.flat);
}

TEST(Forecast, ASumOfTwoProcessesSendsEverythingOnce) {
  const Machines two = {
      .number = 2, .cards_each = 1, .inside = {}, .between = {1e6, 1e-3}};
  EXPECT_DOUBLE_EQ(sum_time(two, 2, 5e6).flat, 5 + 2e-3);
  EXPECT_EQ(sum_time(two, 1, 5e6).least(), 0);
}

TEST(Forecast, AGroupWithoutAHierarchySumsInOneRing) {
  ForecastRequest request = on_machines(64);
  const double least = forecast_step(request).seconds();
  request.has_hierarchy = false;
  const StepForecast step = forecast_step(request);
  EXPECT_FALSE(step.gradient_sum.prefers_hierarchy());
  EXPECT_GE(step.seconds(), least);
}

TEST(Forecast, TheVoteGrowsWithTheLogarithmOfTheMachines) {
  const auto vote = [](int64_t machines, int64_t cards_each) {
    return host_sum_seconds({.number = machines,
                             .cards_each = cards_each,
                             .inside = {1e9, 1e-6},
                             .between = {1e9, 1e-3}},
                            machines * cards_each, 1000);
  };
  EXPECT_EQ(vote(1, 1), 0);
  constexpr double kMessage = 1e-3 + 1e-6;
  EXPECT_DOUBLE_EQ(vote(2, 1), kMessage);
  EXPECT_DOUBLE_EQ(vote(3, 1), 3 * kMessage);
  EXPECT_DOUBLE_EQ(vote(8, 1), 3 * kMessage);
  EXPECT_DOUBLE_EQ(vote(512, 1), 9 * kMessage);
  // Eight ranks of a machine meet twice, and move nine times the bytes.
  EXPECT_DOUBLE_EQ(vote(1, 8), 2e-6 + 9e-6);
  EXPECT_DOUBLE_EQ(vote(8, 8), vote(1, 8) + vote(8, 1));
}

TEST(Forecast, TheVoteOfOneMachineNeedsNoNetwork) {
  Machines one = {.number = 1, .cards_each = 1, .inside = {}, .between = {}};
  one.between.bytes_per_second = 0;
  EXPECT_EQ(host_sum_seconds(one, 1, 1000), 0);
}

// Cards that split only the data sum the reports by NCCL; the hosts of others
// vote.
TEST(Forecast, CardsThatSplitOnlyTheDataDoNotWaitForAVoteOfTheirHosts) {
  ForecastRequest request = on_machines(64);
  request.is_on_cards = true;
  const StepForecast decided = forecast_step(request);
  request.step.plan.zero_stage = 1;
  const StepForecast voted = forecast_step(request);
  EXPECT_LT(decided.host, 0.5e-3);
  EXPECT_GT(voted.host, decided.host + 0.3e-3);
}

TEST(Forecast, WithoutGradientsAStepHasTwoSmallSums) {
  ForecastRequest request = on_machines(64);
  for (TimedLayer& layer : request.step.layers) layer.parameters = 0;
  const double vote =
      host_sum_seconds(request.machines, 512, 8 * (15 * 512 + 10));
  EXPECT_DOUBLE_EQ(forecast_step(request).communication,
                   sum_time(request.machines, 512, 4096).least());
  EXPECT_DOUBLE_EQ(forecast_step(request).host, vote);
  request.has_hierarchy = false;
  EXPECT_DOUBLE_EQ(forecast_step(request).communication,
                   host_sum_seconds(request.machines, 512, 4096));
}

TEST(Forecast, APipelineHasABubbleThatMoreMicroBatchesShrink) {
  ForecastRequest request = on_machines(1, 2);
  request.step.plan.layout = {.pipeline_parallel_size = 2,
                              .data_parallel_size = 1,
                              .spatial_parallel_size = 1};
  request.step.plan.stage_begins = {0, 5};
  request.step.plan.micro_batch_size = 16;
  const StepForecast one = forecast_step(request);
  EXPECT_DOUBLE_EQ(one.bubble, one.compute);
  EXPECT_LT(one.efficiency(), 0.51);
  request.step.plan.micro_batch_size = 8;
  const StepForecast two = forecast_step(request);
  EXPECT_DOUBLE_EQ(two.bubble, one.bubble / 2);
  EXPECT_GT(two.communication, 0);  // the bytes of maps and their gradients
}

TEST(Forecast, SlowLoadersAreTheInputPart) {
  ForecastRequest request = on_machines(2);
  const double seconds = forecast_step(request).seconds();
  request.loaded_images_per_second = 1e9;
  EXPECT_EQ(forecast_step(request).input, 0);
  request.loaded_images_per_second = 100;  // a machine needs 64 images
  const StepForecast step = forecast_step(request);
  EXPECT_NEAR(step.seconds(), 0.64, 1e-9);
  EXPECT_NEAR(step.input, 0.64 - seconds, 1e-9);
}

TEST(Forecast, ShardsCostMoreExchangeTheFurtherTheyGo) {
  ForecastRequest request = on_machines(2);
  request.overlaps = false;
  double before = 0;
  for (const int zero_stage : {0, 1, 3}) {
    request.step.plan.zero_stage = zero_stage;
    const double communication = forecast_step(request).communication;
    EXPECT_GT(communication, before) << zero_stage;
    before = communication;
  }
}

// Backward waits for each reduce-scatter (parallel/zero/sharded_layers.cpp).
TEST(Forecast, ScattersOfShardsAreNotHidden) {
  ForecastRequest request = on_machines(2);
  EXPECT_GT(forecast_step(request).hidden_communication, 0);
  request.step.plan.zero_stage = 2;
  EXPECT_EQ(forecast_step(request).hidden_communication, 0);
}

TEST(Forecast, CardsWaitForTheirHostAndForEachOther) {
  ForecastRequest request = on_machines(1, 1);
  request.is_on_cards = true;
  // The host starts ten blocks in less than the 80 ms of their work.
  EXPECT_NEAR(forecast_step(request).seconds(), 80e-3, 1e-9);
  for (TimedLayer& layer : request.step.layers) layer.norm_layers = 100;
  const StepForecast alone = forecast_step(request);
  EXPECT_GT(alone.compute, 100e-3);
  EXPECT_DOUBLE_EQ(alone.efficiency(), 1);
  request.replays_graphs = true;
  EXPECT_NEAR(forecast_step(request).seconds(), 80e-3, 1e-9);
  ForecastRequest many = on_machines(8);
  const double elsewhere = forecast_step(many).seconds();
  many.is_on_cards = true;
  EXPECT_GT(forecast_step(many).seconds(), elsewhere + 0.4e-3);
  many.replays_graphs = true;  // all sums start after backward
  EXPECT_EQ(forecast_step(many).hidden_communication, 0);
}

// A stage's maps take the host's time to start them, however fast the cards'
// link is, but do not go through its memory.
TEST(Forecast, MessagesBetweenCardsAreStartedByTheHost) {
  ForecastRequest request = on_machines(1, 2);
  request.step.plan.layout = {.pipeline_parallel_size = 2,
                              .data_parallel_size = 1,
                              .spatial_parallel_size = 1};
  request.step.plan.stage_begins = {0, 5};
  request.step.plan.micro_batch_size = 8;
  const double fast = forecast_step(request).communication;
  request.is_on_cards = true;
  // Two micro-batches, each with a map and its gradient.
  EXPECT_GT(forecast_step(request).communication,
            fast + 4 * kMessagesOfCards.latency_seconds * 0.9);
}

}  // namespace
}  // namespace headroom::predict
