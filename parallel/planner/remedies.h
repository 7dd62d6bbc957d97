// What to change about a request that no plan fits: of each kind of change the
// cheapest that fits. Each was planned, by the planner that the changed request
// will meet.
//
//   activations   the policy with the least predicted time
//   micro-batch   the one with which that is least
//   ZeRO, layout  likewise; where none of these does alone, the fewest of them
//                 together
//   processes     the fewest
//   limits        the smallest that suffices, in MiB
//   image         the largest that is smaller, in steps of the model's stride
//   batch         the largest that is smaller
//   groups        the usual ones instead of --sync-bn, and the largest
//                 batch-norm group below --bn-group or --sync-bn
//
// Images and batches of less than half of what is asked for are named only
// where nothing else fits. Where more processes or smaller images do not
// suffice by themselves, the flags of the first four are changed with them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "configs/flags.h"
#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom::planner {

enum class RemedyKind {
  kActivations,
  kMicroBatch,
  kZero,
  kLayout,
  kTogether,  // several of those above
  kProcesses,
  kMemoryLimit,
  kHostMemoryLimit,
  kImage,
  kBatch,
  kGroups
};

struct Remedy {
  RemedyKind kind = RemedyKind::kActivations;
  configs::RunConfig config;  // the changed request, and its processes
  int world_size = 1;
  std::vector<configs::FlagUse> flags;  // flags to add or change
  bool drops_sync_bn = false;           // --sync-bn is to be left out
  plan::Plan plan;
};

// How the flags of a request are called, and what they can be changed to.
struct RemedyScope {
  // The number of processes follows that of agents or nodes: the value of the
  // flag times `processes_each`. "" where the number is settled.
  std::string processes_flag = "--processes";
  std::string processes_prefix = {};  // "p4d.24xlarge:", before the value
  int processes_each = 1;
  int most_processes = 64;
  // The memory limit that a value of so many MiB stands for. A flag of "" is
  // settled.
  std::string limit_flag = "--memory-limit";
  std::function<int64_t(int64_t mebibytes)> limit_of = {};
  // Threads of a process where that depends on how many there are.
  std::function<int64_t(int world_size)> threads_of = {};
  // What a plan has to satisfy besides.
  std::function<bool(const configs::RunConfig&, const plan::Plan&)> admits = {};
  // The whole command with such changes; "" where it is not known.
  std::function<std::string(const Remedy&)> command_with = {};
};

// A plan for a changed request; nothing if it is refused. With `is_final` it is
// the plan that the request gets, else any that shows that it gets one.
using TryPlan = std::function<std::optional<plan::Plan>(
    const configs::RunConfig&, int world_size, bool is_final)>;

// Remedies in the order in which they are worth trying. REQUIRES: layers; a
// request that `try_plan` refuses.
std::vector<Remedy> find_remedies(const configs::RunConfig& config,
                                  int world_size,
                                  const std::vector<layers::LayerCost>& layers,
                                  const RemedyScope& scope,
                                  const TryPlan& try_plan);

// "--activations offload": what is to be changed.
std::string flags_text(const Remedy& remedy);

// "use headroom plan … --activations offload (1.9 GiB); or --processes 2 (…)".
std::string remedies_text(const std::vector<Remedy>& remedies,
                          const RemedyScope& scope);

}  // namespace headroom::planner
