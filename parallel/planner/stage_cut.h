// The layers between which a pipeline is cut, and what its stages compute.
//
// Layers stay in order; every stage gets a run of them with at least one layer
// that has parameters. partition_stages() finds the cut, exactly, by dynamic
// programming over (stage, first layer) in num_stages x layers^2 steps. Among
// the cuts that keep each stage within its memory it takes the one whose
// slowest stage is fastest, since a pipeline runs at the pace of its slowest
// stage; among equals the one with the fewest bytes between stages, then the
// one that cuts earliest.
//
// A pipeline is asked for to save memory. So cut_stages() bounds each stage by
// 5 % more than the least that the fullest stage of any cut needs. A layer's
// memory is what the memory model says of it in the undivided model; exact
// figures for every cut would need a step of the model for each pair of layers.
// So they compare cuts; the peak of the stages is memory_model.h's to say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom::planner {

// What one layer costs its stage. A stage's bytes are its layers' fixed bytes
// once; for every micro-batch in flight its layers' activations and the maps it
// receives; and what the fullest layer needs beyond that while it runs.
struct PartitionLayer {
  double cost = 0;               // seconds, or any measure that adds up
  int64_t fixed_bytes = 0;       // parameters and all that has their size
  int64_t activation_bytes = 0;  // kept for backward, per micro-batch
  // Bytes while the layer runs, forward or backward, its activation_bytes
  // included; beside what the layers before it keep.
  int64_t busy_bytes = 0;
  int64_t map_bytes = 0;  // its output, per micro-batch
  bool has_parameters = true;
  std::vector<int> inputs;  // layers it reads; -1 for the images
};

struct PartitionRequest {
  std::vector<PartitionLayer> layers;
  // How many micro-batches each stage holds at once; as many entries as stages.
  std::vector<int64_t> in_flight;
  std::optional<int64_t> memory_limit_bytes;  // each stage's limit
};

struct StagePartition {
  std::vector<int64_t> stage_begins;  // the first layer of each stage
  std::vector<double> stage_costs;
  std::vector<int64_t> stage_bytes;
};

struct PartitionDecision {
  std::optional<StagePartition> partition;
  std::string reason;  // the stage that decides, or why there is none
};

// REQUIRES: costs and bytes are not negative; layers read earlier layers.
PartitionDecision partition_stages(const PartitionRequest& request);

// The least memory_limit_bytes under which there is a partition: what the
// fullest stage takes when the fullest stage is made as small as it can be.
// Nothing if too few layers have parameters.
std::optional<int64_t> smallest_memory_limit(const PartitionRequest& request);

// Micro-batches of a rank in a full batch.
// REQUIRES: layout, micro-batch and groups are set.
int64_t num_micro_batches(const configs::RunConfig& config,
                          const plan::Plan& plan);

// REQUIRES: as num_micro_batches(); the activation policy and ZeRO stage too.
PartitionDecision cut_stages(const configs::RunConfig& config,
                             const plan::Plan& plan,
                             const std::vector<layers::LayerCost>& layers);

// What the layers of a plan cost each of its pipeline stages.
struct StageShare {
  int64_t begin = 0;  // layers [begin, end)
  int64_t end = 0;
  int64_t parameters = 0;
  double multiply_adds_per_pixel = 0;
};
std::vector<StageShare> stage_shares(
    const plan::Plan& plan, const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::planner
