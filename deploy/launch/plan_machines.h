// The machines that `headroom plan` was asked about, where they are not these:
// --cluster NAME:NODES or --gpu-memory SIZE.
//
// A plan for them is one for as many processes as there are GPUs, whose tensors
// stay within what a GPU has left beside its context and workspaces.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "configs/cluster_catalogue.h"
#include "deploy/launch/command_line.h"

namespace headroom {

struct PlanMachines {
  std::optional<Instance> instance;  // --cluster
  int64_t nodes = 0;
  int64_t gpu_memory_bytes = 0;
  int64_t budget_bytes = 0;  // of a process's tensors

  int64_t num_gpus() const { return instance ? nodes * instance->gpus : 0; }
};

// Nothing if neither flag is given. Throws Error (exit 2).
std::optional<PlanMachines> machines_of(const CommandLine& line);

// The request with the number of processes and the memory limit that follow
// from the machines. Throws Error (exit 2) where another flag contradicts them.
CommandLine with_machines(CommandLine line, const PlanMachines& machines);

// Lines that say what the machines are and what is not known of them.
std::string machines_text(const PlanMachines& machines);

}  // namespace headroom
