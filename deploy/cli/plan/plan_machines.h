// The GPUs that `headroom plan` was asked about: of machines that are not here
// (--cluster NAME:NODES, --gpu CARD:N, --gpu-memory SIZE), or this one's
// (--device 0,1).
//
// A plan for them is one for as many processes as there are GPUs, whose tensors
// stay within what a GPU has left beside its context and workspaces, and beside
// what others use of it already.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/cluster_catalogue.h"
#include "configs/run_config.h"
#include "deploy/cli/args/command_line.h"
#include "parallel/nvml/nvml.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/remedies.h"

namespace headroom::cli {

struct PlanMachines {
  // The flag that named them, which the messages speak of.
  std::string flag;
  // The machine that --cluster names; for --gpu one with one such card.
  std::optional<configs::Instance> instance;
  int64_t nodes = 0;
  std::vector<nvml::Card> cards;  // --device
  // What one GPU has, or is left of it: the least of all cards.
  int64_t gpu_memory_bytes = 0;
  int64_t budget_bytes = 0;  // bytes for a process's tensors

  int64_t num_gpus() const {
    return instance ? nodes * instance->gpus
                    : static_cast<int64_t>(cards.size());
  }
  // What NCCL takes of a GPU in a run of this layout.
  int64_t communication_bytes(const plan::ParallelLayout& layout,
                              int zero_stage) const;
  // What a GPU has for the segments of a plan's tensors.
  int64_t segment_room(const plan::Plan& plan) const;
};

// Nothing if no flag names a GPU. Throws Error (exit 2).
std::optional<PlanMachines> machines_of(const CommandLine& line,
                                        const nvml::Nvml& nvml);

// The request with the number of processes and the memory limit that follow
// from the machines. Throws Error (exit 2) where another flag contradicts them.
CommandLine with_machines(CommandLine line, const PlanMachines& machines);

// Throws Error (exit 2) where --layout asks for other processes than the
// machines have GPUs, with the machines that it would fit.
void check_layout(const PlanMachines& machines,
                  const configs::RunConfig& config);

// What a remedy may change of a request for machines: their number, or the
// memory of their GPUs where these are not named.
void bound_remedies(planner::RemedyScope& remedies,
                    const PlanMachines& machines,
                    const configs::RunConfig& config);

// Lines that say what the machines are and what is not known of them.
std::string machines_text(const PlanMachines& machines);

}  // namespace headroom::cli
