// plan_memory: the memory that a run's plan takes, rank by rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/memory_model.h"
#include "parallel/predict/memory_request.h"
#include "parallel/predict/time_model.h"

namespace headroom::planner {

// Per rank of the plan's layout.
std::vector<plan::PhaseBytes> predicted_phase_bytes(
    const predict::MemoryRequest& request);
std::vector<int64_t> predicted_peak_bytes(
    const predict::MemoryRequest& request);

// What is said of its memory in a plan whose layers, batches and policies are
// decided: how many images of a validation batch go through at once, as many as
// fit, and what each rank needs.
void predict_memory(const configs::RunConfig& config,
                    const std::vector<layers::LayerCost>& layers,
                    plan::Plan& plan);

// Why --host-memory-limit does not suffice, however little the loader makes do
// with; nothing if it does, or there is none.
struct HostShortage {
  std::string reason, remedy;
};
std::optional<HostShortage> host_shortage(
    const configs::RunConfig& config,
    const std::vector<layers::LayerCost>& layers, const plan::Plan& plan);

// Of the rank that needs most. REQUIRES: a plan with predicted bytes.
int64_t fullest_rank_bytes(const plan::Plan& plan);
// In which part of a run that is: "in a step", "at the start", "in a
// validation", "for a checkpoint".
std::string fullest_phase(const plan::Plan& plan);
// The same of what no smaller validation would change.
int64_t fullest_rank_training_bytes(const plan::Plan& plan);

// plan_time: how long a step of a run's plan takes, from its request and the
// model's layers (parallel/predict/time_model.h, configs/layers/layer_cost.h).

// Forward and backward of a layer under a policy, in the unit of
// configs/layers/layer_cost.h.
double layer_work(const layers::LayerCost& layer,
                  plan::ActivationPolicy policy);

// On ranks of one host, each a core of a current server processor.
// REQUIRES: a plan that the planner accepted for `config`.
predict::StepEstimate plan_time(const configs::RunConfig& config,
                                const plan::Plan& plan,
                                const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::planner
