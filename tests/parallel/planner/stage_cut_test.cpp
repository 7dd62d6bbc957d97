#include "parallel/planner/stage_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"

namespace headroom::planner {
namespace {

PartitionRequest chain(const std::vector<double>& costs, size_t num_stages) {
  PartitionRequest request;
  for (size_t i = 0; i < costs.size(); ++i) {
    PartitionLayer layer;
    layer.cost = costs[i];
    layer.inputs = {static_cast<int>(i) - 1};
    request.layers.push_back(layer);
  }
  request.in_flight.assign(num_stages, 1);
  return request;
}

using Begins = std::vector<int64_t>;

TEST(StagePartition, MinimisesTheSlowestStage) {
  EXPECT_EQ(partition_stages(chain({4, 1, 1, 3, 2, 1}, 3)), (Begins{0, 1, 4}));
}

TEST(StagePartition, OneStageTakesAll) {
  EXPECT_EQ(partition_stages(chain({1, 2}, 1)), Begins{0});
}

TEST(StagePartition, EveryStageGetsParameters) {
  PartitionRequest request = chain({1, 9, 9, 1}, 2);
  request.layers[2].has_parameters = false;
  request.layers[3].has_parameters = false;
  EXPECT_EQ(partition_stages(request), (Begins{0, 1}));
  request.in_flight.push_back(1);
  EXPECT_EQ(partition_stages(request), std::nullopt) << "three stages";
  EXPECT_EQ(partition_stages(chain({1, 1, 1}, 4)), std::nullopt);
}

TEST(StagePartition, AMapThatMayNotBeSentIsReadInItsStage) {
  PartitionRequest request = chain({1, 1, 1, 1}, 2);
  EXPECT_EQ(partition_stages(request), (Begins{0, 2}));
  request.layers[1].may_be_sent = false;
  EXPECT_EQ(partition_stages(request), (Begins{0, 1}));
  request.layers[0].may_be_sent = false;
  EXPECT_EQ(partition_stages(request), (Begins{0, 3}));
  request.layers[2].may_be_sent = false;
  EXPECT_EQ(partition_stages(request), std::nullopt);
}

// The branches of a head without anchors are one stage together.
TEST(StagePartition, BranchesAreInTheLastStage) {
  const auto layers = layers::layer_costs(layers::load_model_table("yolov8n"));
  constexpr int64_t kBranches = 6;
  EXPECT_EQ(std::ranges::count_if(layers, &layers::LayerCost::is_branch),
            kBranches);
  const int64_t with_parameters = std::ranges::count_if(
      layers,
      [](const layers::LayerCost& layer) { return layer.parameters > 0; });
  EXPECT_EQ(most_stages(layers), with_parameters - kBranches + 1);
  predict::MemoryRequest request;
  request.layers = layers;
  request.plan.micro_batch_size = request.plan.batch_norm_group_size = 1;
  request.global_batch_size = 2;
  for (const int64_t stages : {int64_t{4}, most_stages(layers)}) {
    request.plan.layout.pipeline_parallel_size = static_cast<int>(stages);
    request.plan.stage_begins = {0};
    const Begins begins = cut_stages(request);
    EXPECT_EQ(std::ssize(begins), stages);
    EXPECT_LE(begins.back(), std::ssize(layers) - kBranches - 1);
  }
}

TEST(StagePartition, AmongEqualsFewestBytesThenTheEarliestCut) {
  // The slowest stage takes 2 with the expected cut, and 3 with each other cut.
  PartitionRequest request = chain({2, 1, 1, 2}, 3);
  request.layers[0].map_bytes = 10;
  request.layers[1].map_bytes = 20;
  request.layers[2].map_bytes = 10;
  EXPECT_EQ(partition_stages(request), (Begins{0, 1, 3}));

  request = chain({1, 0, 1}, 2);
  EXPECT_EQ(partition_stages(request), (Begins{0, 1}));
  request.layers[0].map_bytes = 2;
  request.layers[1].map_bytes = 1;
  EXPECT_EQ(partition_stages(request), (Begins{0, 2}));
}

// A skip is held by the stage that reads it; it counts once for every
// micro-batch in flight.
TEST(StagePartition, BytesOfAStage) {
  PartitionRequest request = chain({1, 1, 1, 1}, 2);
  request.in_flight = {2, 1};
  for (PartitionLayer& layer : request.layers) {
    layer.fixed_bytes = 100;
    layer.activation_bytes = 10;
    layer.map_bytes = 1;
  }
  request.layers[2].inputs = {1, 0};
  request.layers[3].inputs = {2, 0};
  request.layers[0].activation_bytes = 5;
  EXPECT_EQ(partition_stages(request), (Begins{0, 2}));
  EXPECT_EQ(smallest_memory_limit(request), 200 + 2 * 15) << "of the first";
  request.layers[3].activation_bytes = 30;
  EXPECT_EQ(smallest_memory_limit(request), 200 + 40 + 2) << "of the second";
}

TEST(StagePartition, TheMemoryLimitMovesTheCut) {
  PartitionRequest request = chain({1, 1, 1, 1}, 2);
  for (PartitionLayer& layer : request.layers) layer.activation_bytes = 1024;
  request.layers[0].activation_bytes = 2048;
  request.in_flight = {2, 1};
  request.memory_limit_bytes = 5 * 1024;
  EXPECT_EQ(partition_stages(request), (Begins{0, 1}));
  request.memory_limit_bytes = 3 * 1024;
  EXPECT_EQ(partition_stages(request), std::nullopt);
}

TEST(StagePartition, ImpossibleRequestsAreProgrammersErrors) {
  EXPECT_THROW(partition_stages(chain({1}, 0)), CheckFailure);
  EXPECT_THROW(partition_stages(chain({-1}, 1)), CheckFailure);
  PartitionRequest request = chain({1, 1}, 1);
  request.layers[1].inputs = {1};
  EXPECT_THROW(partition_stages(request), CheckFailure);
}

// The time of the slowest stage with the best of all cuts; nothing if no cut
// fits.
std::optional<double> best_by_trying(const PartitionRequest& request) {
  const int num_layers = static_cast<int>(request.layers.size());
  const int num_stages = static_cast<int>(request.in_flight.size());
  std::optional<double> best;
  for (int mask = 0; mask < 1 << (num_layers - 1); ++mask) {
    std::vector<int> cuts = {0};
    for (int layer = 1; layer < num_layers; ++layer)
      if ((mask >> (layer - 1) & 1) != 0) cuts.push_back(layer);
    if (static_cast<int>(cuts.size()) != num_stages) continue;
    cuts.push_back(num_layers);
    double slowest = 0;
    bool fits = true;
    for (int stage = 0; stage < num_stages; ++stage) {
      const auto index = static_cast<size_t>(stage);
      double cost = 0;
      int64_t bytes = 0, kept = 0, busy = 0;
      bool has_parameters = false;
      std::vector<int> received;
      for (int layer = cuts[index]; layer < cuts[index + 1]; ++layer) {
        const PartitionLayer& one = request.layers[static_cast<size_t>(layer)];
        cost += one.cost;
        bytes +=
            one.fixed_bytes + request.in_flight[index] * one.activation_bytes;
        busy = std::max(busy, kept + one.busy_bytes);
        kept += one.activation_bytes;
        has_parameters |= one.has_parameters;
        for (const int input : one.inputs)
          if (input >= 0 && input < cuts[index]) received.push_back(input);
      }
      bytes += std::max<int64_t>(busy - kept, 0);
      std::sort(received.begin(), received.end());
      received.erase(std::unique(received.begin(), received.end()),
                     received.end());
      for (const int layer : received)
        bytes += request.in_flight[index] *
                 request.layers[static_cast<size_t>(layer)].map_bytes;
      slowest = std::max(slowest, cost);
      fits =
          fits && has_parameters &&
          (!request.memory_limit_bytes || bytes <= *request.memory_limit_bytes);
    }
    if (fits && (!best || slowest < *best)) best = slowest;
  }
  return best;
}

double slowest_stage(const PartitionRequest& request, const Begins& begins) {
  double slowest = 0, cost = 0;
  for (size_t layer = 0; layer < request.layers.size(); ++layer) {
    if (std::ranges::count(begins, static_cast<int64_t>(layer)) > 0) cost = 0;
    cost += request.layers[layer].cost;
    slowest = std::max(slowest, cost);
  }
  return slowest;
}

// Expects that a partition exists within this limit, and that none exists
// within one byte less.
void expect_smallest_limit(PartitionRequest request) {
  const std::optional<int64_t> limit = smallest_memory_limit(request);
  request.memory_limit_bytes = limit;
  EXPECT_EQ(best_by_trying(request).has_value(), limit.has_value());
  EXPECT_EQ(partition_stages(request).has_value(), limit.has_value());
  if (!limit) return;
  request.memory_limit_bytes = *limit - 1;
  EXPECT_FALSE(best_by_trying(request));
}

TEST(StagePartition, IsTheBestOfAllCuts) {
  int num_refused = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](uint32_t most) {
      return static_cast<int>(random() % (most + 1));
    };
    PartitionRequest request;
    const int num_layers = 1 + draw(8);
    for (int layer = 0; layer < num_layers; ++layer) {
      PartitionLayer one;
      one.cost = draw(20);
      one.fixed_bytes = draw(30);
      one.activation_bytes = draw(30);
      one.busy_bytes = draw(60);
      one.map_bytes = draw(10);
      one.has_parameters = draw(3) > 0;
      one.inputs = {layer - 1};
      if (layer > 1)
        one.inputs.push_back(draw(static_cast<uint32_t>(layer - 1)));
      request.layers.push_back(one);
    }
    const int num_stages = 1 + draw(3);
    for (int stage = num_stages; stage > 0; --stage)
      request.in_flight.push_back(stage);
    if (draw(1) == 1) request.memory_limit_bytes = 60 + draw(200);
    const auto begins = partition_stages(request);
    const std::optional<double> best = best_by_trying(request);
    ASSERT_EQ(begins.has_value(), best.has_value()) << "seed " << seed;
    expect_smallest_limit(request);
    if (!best) {
      ++num_refused;
      continue;
    }
    EXPECT_EQ(slowest_stage(request, *begins), *best) << "seed " << seed;
  }
  EXPECT_GT(num_refused, 20);
  EXPECT_LT(num_refused, 280);
}

}  // namespace
}  // namespace headroom::planner
