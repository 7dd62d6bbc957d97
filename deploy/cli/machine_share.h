// Bounds a run by the machine, or the container, on which it starts.
//
// If tensors (on the CPU) and loaders may need more memory than is free, sets
// limits that the user did not set: first --host-memory-limit, because a
// smaller loader costs least, then --memory-limit, within which the planner
// finds a plan. Under several agents, the machine of the first agent decides.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "parallel/machine/machine_limits.h"

namespace headroom::cli {

struct MachineShare {
  MachineLimits machine;  // memory_bytes 0: unknown, so nothing is bounded
  int workers_here = 1;   // workers of all agents on this machine
  int world_size = 1;     // workers of all machines
  std::set<std::string> given;  // keys of options whose values are kept
};

// For --batch -1 on the CPU without --memory-limit, sets limits with which
// tensors and loaders together fit into the free memory. Called before the
// batch is known.
void limit_largest_batch(const MachineShare& share, configs::RunConfig& config);

// Sets the limits that are needed. Returns lines for the user about the limits
// that hold; no line if neither the container has a limit nor one was set here.
// REQUIRES: config.threads is set. Throws Error (exit 3) if not even the
// programs fit.
std::vector<std::string> bound_by_machine(const MachineShare& share,
                                          configs::RunConfig& config);

}  // namespace headroom::cli
