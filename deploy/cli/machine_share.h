// Bounds a run by the machine, or the container, on which it starts.
//
// Where tensors (on the CPU) and loaders may take more than is free, limits are
// set that were left open: --host-memory-limit first, as a smaller loader costs
// least, then --memory-limit, within which the planner finds a plan. Under
// several agents the first one's machine decides.
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

// For --batch -1 on the CPU without --memory-limit: what is free is the limit.
// Called before the batch is known.
void limit_largest_batch(const MachineShare& share, configs::RunConfig& config);

// Returns lines for the user: which limit holds, if a container's does or a
// limit was set. REQUIRES: config.threads is set. Throws Error (exit 3) if not
// even the programs fit.
std::vector<std::string> bound_by_machine(const MachineShare& share,
                                          configs::RunConfig& config);

}  // namespace headroom::cli
