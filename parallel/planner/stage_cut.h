// stage_cut: between which layers a pipeline is cut, and what its stages
// compute.
//
// A pipeline is asked for to save memory. So among the cuts whose fullest stage
// needs at most 5 % more than the least that any cut can do, the one whose
// slowest stage is fastest is taken (parallel/planner/stage_partition.h).
//
// A layer's memory is what the memory model says of it in the undivided model
// (parallel/predict/layers.h): exact for every cut would be a step of
// the model for each pair of layers. So it compares cuts; the peak of the
// stages that come of it is memory_model.h's.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/stage_partition.h"

namespace headroom::planner {

// A full batch's, of a rank. REQUIRES: layout, micro-batch and groups are set.
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
