// The memory that a run's plan takes, rank by rank, and the time of its steps.
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

// One entry per rank of the plan's layout.
std::vector<plan::PhaseBytes> predicted_phase_bytes(
    const predict::MemoryRequest& request);
std::vector<int64_t> predicted_peak_bytes(
    const predict::MemoryRequest& request);

// Completes a plan whose layout, batches and policies are decided: as many
// images of a validation batch at once as fit, and what each rank needs.
void predict_memory(const configs::RunConfig& config,
                    const std::vector<layers::LayerCost>& layers,
                    plan::Plan& plan);

// Whether what predict_memory() would say stays within config.memory_limit, in
// less time. The state is what a rank has beside its steps, which depends on
// its layers, the layout and the ZeRO stage alone. REQUIRES: as there.
enum class MemoryFit { kFits, kStepTooLarge, kStateTooLarge };
MemoryFit memory_fit(const configs::RunConfig& config,
                     const std::vector<layers::LayerCost>& layers,
                     const plan::Plan& plan);

// Why --host-memory-limit does not suffice for even the smallest loader;
// nothing if it does, or there is none.
std::optional<std::string> host_shortage(
    const configs::RunConfig& config,
    const std::vector<layers::LayerCost>& layers, const plan::Plan& plan);

// What the rank that needs most needs. REQUIRES: a plan with predicted bytes.
int64_t fullest_rank_bytes(const plan::Plan& plan);
// The part of a run in which that is: "in a step", "at the start", "in a
// validation", "for a checkpoint".
std::string fullest_phase(const plan::Plan& plan);
// What it needs outside validation: no smaller validation would change that.
int64_t fullest_rank_training_bytes(const plan::Plan& plan);

// The work of a layer's forward and backward under a policy, in the unit of
// configs/layers/layer_cost.h.
double layer_work(const layers::LayerCost& layer,
                  plan::ActivationPolicy policy);

plan::ActivationPolicy policy_of(const plan::Plan& plan, size_t layer);

// What plan_time() asks of the time model, but for the image's size.
predict::TimeRequest time_request(const configs::RunConfig& config,
                                  const plan::Plan& plan,
                                  const std::vector<layers::LayerCost>& layers);

// How long a step takes (parallel/predict/time_model.h) on ranks of one host,
// each a core of a current server processor; over the run's network where that
// was measured. REQUIRES: a plan that the planner
// accepted for `config`.
predict::StepEstimate plan_time(const configs::RunConfig& config,
                                const plan::Plan& plan,
                                const std::vector<layers::LayerCost>& layers);

// Whether batch-norm groups span so many data ranks that they hardly share a
// machine, so that other layouts may be faster.
bool exchanges_far(const configs::RunConfig& config, const plan::Plan& plan);

// What groups that span data ranks cost in a step; "" where none do.
std::string statistics_text(const predict::StepEstimate& step);

}  // namespace headroom::planner
