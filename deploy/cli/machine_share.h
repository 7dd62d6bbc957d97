// Bounds a run by the machine, or the container, on which it starts.
//
// These limits follow from the machine and not from the user, so they never
// change what is trained: the loaders get smaller, and within the limit of a
// container the planner may choose leaner activations and smaller micro-batches
// on the CPU, but neither other batch-norm groups nor offload, which needs a
// file. What fits no such plan is refused. The free memory of a machine without
// a container changes from minute to minute; it never changes the plan, and a
// run that may need more gets a warning. Under several agents, the machine of
// the first agent decides.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "parallel/machine/machine_limits.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/remedies.h"

namespace headroom::cli {

struct MachineShare {
  MachineLimits machine;        // without memory_bytes nothing is bounded
  int workers_here = 1;         // workers of all agents on this machine
  int world_size = 1;           // workers of all machines
  std::set<std::string> given;  // keys of the options that the user has set
};

struct MachineBounds {
  std::vector<std::string> lines;  // the limits, as text for the user
  bool bounds_plan = false;        // memory_limit comes from the container
};

// For --batch -1 on the CPU without --memory-limit, sets limits with which
// tensors and loaders together fit into the free memory, and returns true. Sets
// none for --activations offload without --host-memory-limit, which bounds the
// file of offloaded tensors too. Called before the batch is known. Throws Error
// (exit 3) if they cannot fit.
bool limit_largest_batch(const MachineShare& share, configs::RunConfig& config);

// The functions below plan the run with `search`, so that a later plan of the
// same request finds its predictions there.

// If the loaders need more for the batch that limit_largest_batch() led to,
// moves bytes from the tensors' limit to the loaders' limit and returns true:
// the batch must be chosen again. Throws as limit_largest_batch().
bool give_loaders_more(const MachineShare& share, planner::PlanSearch& search,
                       configs::RunConfig& config);

// Sets the limits that are needed and that the user did not set: first
// --host-memory-limit, because a smaller loader costs least, then
// --memory-limit. No line if neither the container has a limit nor one was set
// here. A search without layers, of a model that cannot be read, sets none.
// REQUIRES: config.threads is set. Throws Error (exit 3) if a container has no
// room for the programs and the loaders.
MachineBounds bound_by_machine(const MachineShare& share,
                               planner::PlanSearch& search,
                               configs::RunConfig& config);

// Refuses (exit 3) a run whose plan within the bounds would have other
// batch-norm groups, or offload that the user did not ask for. The remedies
// hold under these bounds. May set config.activations to the value with which a
// plan without offload fits. Call it when the labels are known.
void require_same_training(const MachineBounds& bounds, int world_size,
                           const planner::RemedyScope& scope,
                           planner::PlanSearch& search,
                           configs::RunConfig& config);

}  // namespace headroom::cli
