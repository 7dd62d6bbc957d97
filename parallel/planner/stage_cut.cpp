#include "parallel/planner/stage_cut.h"

#include <algorithm>
#include <cmath>

#include "parallel/planner/saved_plan.h"
#include "parallel/predict/memory_model.h"
#include "parallel/predict/memory_request.h"
#include "parallel/predict/rank_share.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::planner {
namespace {

constexpr double kMemorySlack = 1.05;  // over the least that any cut needs

// Parameters and all that has their size, of one layer on one rank.
int64_t state_bytes(predict::MemoryRequest& request, int64_t layer) {
  request.plan.stage_begins = {0, layer, layer + 1};
  plan::MeshCoordinates alone;
  alone.pipeline_stage = 1;
  const predict::MemoryEstimate state =
      predict::RankShare(request, alone).resident();
  return state.parameters + state.gradients + state.accumulated_gradients +
         state.moments + state.average;
}

// With stages 1F1B holds one micro-batch more per stage that follows.
PartitionRequest request_of(const configs::RunConfig& config,
                            const plan::Plan& plan,
                            const std::vector<layers::LayerCost>& layers) {
  predict::MemoryRequest memory = predict::memory_request(config, plan, layers);
  memory.plan.stage_begins = {0};
  const predict::RankMicroBatch whole = predict::rank_micro_batch(memory, {});
  const std::vector<predict::LayerCost> bytes =
      predict::planned_layer_costs(whole.stage, whole.extents, whole.loss);
  PartitionRequest request;
  for (size_t i = 0; i < layers.size(); ++i) {
    const layers::LayerCost& layer = layers[i];
    PartitionLayer part;
    part.cost = layer.multiply_adds_per_pixel *
                static_cast<double>(memory.image_height * memory.image_width);
    part.fixed_bytes = state_bytes(memory, static_cast<int64_t>(i));
    part.activation_bytes = bytes[i].kept_bytes;
    part.busy_bytes = bytes[i].peak_bytes;
    part.map_bytes = whole.extents.map_bytes(layer.channels, layer.stride);
    part.has_parameters = layer.parameters > 0;
    part.inputs = layer.inputs;
    request.layers.push_back(part);
  }
  const int stages = plan.layout.pipeline_parallel_size;
  const int64_t micro_batches = num_micro_batches(config, plan);
  for (int stage = 0; stage < stages; ++stage) {
    request.in_flight.push_back(
        std::min<int64_t>(stages - stage, micro_batches));
  }
  return request;
}

}  // namespace

// A share's micro-batches do not depend on the image: a full batch leaves no
// remainder that the smallest map could join.
int64_t num_micro_batches(const configs::RunConfig& config,
                          const plan::Plan& plan) {
  return static_cast<int64_t>(
      plan::part_of(batch_cut(config, plan), config.global_batch_size, 2, 0)
          .micro_batches.size());
}

PartitionDecision cut_stages(const configs::RunConfig& config,
                             const plan::Plan& plan,
                             const std::vector<layers::LayerCost>& layers) {
  PartitionRequest request = request_of(config, plan, layers);
  if (const auto least = smallest_memory_limit(request)) {
    request.memory_limit_bytes =
        std::llround(kMemorySlack * static_cast<double>(*least));
  }
  return partition_stages(request);
}

std::vector<StageShare> stage_shares(
    const plan::Plan& plan, const std::vector<layers::LayerCost>& layers) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  std::vector<StageShare> shares;
  for (size_t stage = 0; stage < plan.stage_begins.size(); ++stage) {
    StageShare share;
    share.begin = plan.stage_begins[stage];
    share.end = stage + 1 < plan.stage_begins.size()
                    ? plan.stage_begins[stage + 1]
                    : num_layers;
    for (int64_t layer = share.begin; layer < share.end; ++layer) {
      const layers::LayerCost& cost = layers.at(static_cast<size_t>(layer));
      share.parameters += cost.parameters;
      share.multiply_adds_per_pixel += cost.multiply_adds_per_pixel;
    }
    shares.push_back(share);
  }
  return shares;
}

}  // namespace headroom::planner
