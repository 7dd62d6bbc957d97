// plan_memory: the memory that a run's plan takes, rank by rank.
//
// Threads: a pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/predict/memory_model.h"
#include "parallel/predict/memory_request.h"

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

}  // namespace headroom::planner
