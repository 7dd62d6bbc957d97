// The GPUs for which `headroom plan` plans: GPUs of other machines (--cluster
// NAME:NODES, --gpu CARD:N, --gpu-memory SIZE), or of this machine (--device
// 0,1).
//
// The plan has one process per GPU. Each process's tensors must fit into the
// memory that the CUDA context, the workspaces and other programs leave.
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
#include "proto/reports.h"

namespace headroom::cli {

struct PlanMachines {
  // The flag that named the GPUs, for messages.
  std::string flag;
  // The machine named by --cluster; for --gpu one machine with these cards.
  std::optional<configs::Instance> instance;
  int64_t nodes = 0;
  int64_t processes = 1;  // from the run's flags, with --gpu-memory
  // Says which card was chosen if several cards have this name; else "".
  std::string note;
  std::vector<nvml::Card> cards;  // with --device: this machine's cards
  // The memory of a GPU; with --device, the least memory free on any of the
  // cards.
  int64_t gpu_memory_bytes = 0;
  int64_t budget_bytes = 0;  // bytes for a process's tensors

  int64_t num_gpus() const {
    if (instance) return nodes * instance->gpus;
    return cards.empty() ? processes : static_cast<int64_t>(cards.size());
  }
  // The bytes that NCCL uses on a GPU with this layout.
  int64_t communication_bytes(const plan::ParallelLayout& layout,
                              int zero_stage) const;
  // The bytes of a GPU that are available for the segments of a plan's tensors.
  int64_t segment_room(const plan::Plan& plan) const;
  bool is_card() const { return flag == "--gpu"; }
  // The known facts of a GPU elsewhere; nullopt for this machine's cards.
  std::optional<wire::NodeCard> elsewhere() const;
};

// Why nothing can be trained on these cards: "NVIDIA K80 has compute capability
// 3.7, ..."; "" if they can be used.
std::string why_unusable(const configs::Instance& instance);
std::string why_unusable(const std::optional<PlanMachines>& machines);

// Returns nullopt if no flag names a GPU. Throws Error (exit 2).
std::optional<PlanMachines> machines_of(const CommandLine& line,
                                        const nvml::Nvml& nvml);

// The request with the number of processes and the memory limit of the
// machines. Throws Error (exit 2) if another flag contradicts them.
CommandLine with_machines(CommandLine line, const PlanMachines& machines);

// Throws Error (exit 2) if --layout needs another number of processes than the
// machines have GPUs. The message names machines that would fit.
void check_layout(const PlanMachines& machines,
                  const configs::RunConfig& config);

// Limits what remedies may change: the number of machines; with --gpu-memory
// the number of processes and the memory of a GPU; with --device neither.
void bound_remedies(planner::RemedyScope& remedies,
                    const PlanMachines& machines,
                    const configs::RunConfig& config);

// Lines that describe the machines and their memory.
std::string machines_text(const PlanMachines& machines);

}  // namespace headroom::cli
