// Chooses the layers at which a pipeline is cut, and computes the cost of its
// stages.
//
// Layers stay in order; every stage gets consecutive layers, at least one of
// them with parameters. All branches of a head without anchors are in the last
// stage, because stages exchange maps of the run's number format, and raw heads
// are at least float32. partition_stages() finds the best cut exactly, by
// dynamic programming over (stage, first layer) in num_stages x layers^2 steps.
// Among the cuts that keep each stage within its memory it takes the one whose
// slowest stage is fastest, since that stage sets the pipeline's speed; among
// equals the one with the fewest bytes between stages, then the one that cuts
// earliest.
//
// Pipelines are used to save memory, so cut_stages() limits each stage to 5 %
// more than the smallest limit with which a cut exists. A layer's memory is
// taken from the memory model of the undivided model, because exact numbers for
// every cut would need a simulation for each pair of layers. These numbers only
// compare cuts; memory_model.h computes the real peak.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/predict/memory_model.h"

namespace headroom::planner {

// The costs of one layer. A stage's bytes are a sum: the fixed bytes of its
// layers; for every micro-batch in flight, the activations of its layers and
// the received maps; and the fullest layer's extra bytes while that layer runs.
struct PartitionLayer {
  double cost = 0;               // seconds, or another additive measure
  int64_t fixed_bytes = 0;       // parameters and all buffers of the same size
  int64_t activation_bytes = 0;  // kept for backward, per micro-batch
  // Peak bytes while the layer runs, including its activation_bytes, without
  // bytes kept by earlier layers.
  int64_t busy_bytes = 0;
  int64_t map_bytes = 0;  // the layer's output, per micro-batch
  bool has_parameters = true;
  bool may_be_sent = true;  // whether other stages may read the output
  std::vector<int> inputs;  // -1: the images; else a layer whose output is read
};

struct PartitionRequest {
  std::vector<PartitionLayer> layers;
  // Micro-batches that each stage holds at once; one entry per stage.
  std::vector<int64_t> in_flight;
  std::optional<int64_t> memory_limit_bytes;  // each stage's limit
};

// The first layer of each stage; no value if no cut stays within the limit, or
// if too few layers have parameters. REQUIRES: costs and bytes are not
// negative; layers read earlier layers.
std::optional<std::vector<int64_t>> partition_stages(
    const PartitionRequest& request);

// The smallest memory_limit_bytes with which there is a partition. No value if
// too few layers have parameters.
std::optional<int64_t> smallest_memory_limit(const PartitionRequest& request);

// The largest number of stages of a model.
int64_t most_stages(const std::vector<layers::LayerCost>& layers);

// The first layer of each stage of a pipeline. REQUIRES: the plan has a layout,
// micro-batch, groups, policies and ZeRO stage, and at most most_stages()
// stages.
std::vector<int64_t> cut_stages(const predict::MemoryRequest& request);

// The cost of each pipeline stage of a plan.
struct StageShare {
  int64_t begin = 0;  // layers [begin, end)
  int64_t end = 0;
  int64_t parameters = 0;
  double multiply_adds_per_pixel = 0;
};
std::vector<StageShare> stage_shares(
    const plan::Plan& plan, const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::planner
