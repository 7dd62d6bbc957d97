// Predicts the memory of a run's plan, rank by rank, and the time of its steps.
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

// Completes a plan whose layout, batches and policies are chosen: sets how many
// validation images fit at once, and each rank's predicted bytes.
void predict_memory(const configs::RunConfig& config,
                    const std::vector<layers::LayerCost>& layers,
                    plan::Plan& plan);

// Returns whether the bytes that predict_memory() would compute stay within
// config.memory_limit, in less time. The state is a rank's memory outside its
// steps; it depends only on the layers, the layout and the ZeRO stage.
// REQUIRES: as predict_memory().
enum class MemoryFit { kFits, kStepTooLarge, kStateTooLarge };
MemoryFit memory_fit(const configs::RunConfig& config,
                     const std::vector<layers::LayerCost>& layers,
                     const plan::Plan& plan);

// Why --host-memory-limit is too small for even the smallest loader; nothing if
// it suffices or is not set.
std::optional<std::string> host_shortage(
    const configs::RunConfig& config,
    const std::vector<layers::LayerCost>& layers, const plan::Plan& plan);

// Bytes of the rank that needs most. REQUIRES: a plan with predicted bytes.
int64_t fullest_rank_bytes(const plan::Plan& plan);
// The phase in which that rank needs most: "in a step", "at the start", "in a
// validation", "for a checkpoint".
std::string fullest_phase(const plan::Plan& plan);
// Its bytes outside validation, which a smaller validation cannot reduce.
int64_t fullest_rank_training_bytes(const plan::Plan& plan);

// The work of a layer's forward and backward under a policy, in the unit of
// configs/layers/layer_cost.h.
double layer_work(const layers::LayerCost& layer,
                  plan::ActivationPolicy policy);

plan::ActivationPolicy policy_of(const plan::Plan& plan, size_t layer);

// plan_time()'s request to the time model, without the image size.
predict::TimeRequest time_request(const configs::RunConfig& config,
                                  const plan::Plan& plan,
                                  const std::vector<layers::LayerCost>& layers);

// Predicts a step's time (parallel/predict/time_model.h) if each rank is a core
// of a current server processor and all are on one host, or connected by the
// run's network if that was measured. REQUIRES: a plan that the planner
// accepted for `config`.
predict::StepEstimate plan_time(const configs::RunConfig& config,
                                const plan::Plan& plan,
                                const std::vector<layers::LayerCost>& layers);

// Whether batch-norm groups span more data ranks than usually share a machine,
// so that other layouts may be faster.
bool exchanges_far(const configs::RunConfig& config, const plan::Plan& plan);

// The cost per step of groups that span data ranks; "" without such groups.
std::string statistics_text(const predict::StepEstimate& step);

}  // namespace headroom::planner
