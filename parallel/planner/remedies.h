// Proposes changes to a request for which no plan fits: of each kind the
// cheapest change with which a plan fits. The planner plans each changed
// request, so the advice is exact.
//
//   precision     a shorter number format that the cards have
//   activations   the policy with the least predicted time
//   micro-batch   the size with the least predicted time
//   ZeRO, layout  the value with the least predicted time; if no change of a
//                 single flag fits, the fewest flags
//   processes     the fewest
//   limits        the smallest sufficient limit, in MiB
//   image         the largest smaller size, in steps of the model's stride
//   batch         the largest smaller batch
//   model         the largest smaller one of its family
//   groups        the usual groups instead of --sync-bn, and the largest
//                 batch-norm group below --bn-group or --sync-bn
//
// Images and batches of less than half the requested size, and models more than
// one size smaller, are named only if nothing else fits. If more processes,
// shorter numbers, smaller images or models are not enough, the flags for
// activations, micro-batch, ZeRO and layout are changed too. Changes that need
// nothing else come first, the fastest of them at the front.
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
#include "parallel/planner/card_speed.h"
#include "parallel/planner/plan_search.h"

namespace headroom::planner {

enum class RemedyKind {
  kPrecision,
  kActivations,
  kMicroBatch,
  kZero,
  kLayout,
  kTogether,  // at least two of the four kinds above together
  kProcesses,
  kMemoryLimit,
  kHostMemoryLimit,
  kImage,
  kBatch,
  kModel,
  kGroups
};

struct Remedy {
  RemedyKind kind = RemedyKind::kActivations;
  configs::RunConfig config;  // the changed request
  int world_size = 1;
  std::vector<configs::FlagUse> flags;  // flags to add or change
  bool drops_sync_bn = false;           // --sync-bn must be removed
  plan::Plan plan;
  // The time per image, divided by the time per image of the request without
  // limits; 0 if unknown.
  double time_ratio = 0;
};

// The names of a request's flags, and the values they may take.
struct RemedyScope {
  // The flag that sets the number of processes, agents or nodes, each of which
  // counts as `processes_each` processes. "" if the number is fixed.
  std::string processes_flag = "--processes";
  // text before the value, as in "p4d.24xlarge:2"
  std::string processes_prefix = {};
  int processes_each = 1;
  int most_processes = 64;
  // The flag of the memory limit ("" if fixed). `limit_of` converts a value of
  // this flag in MiB to the limit in bytes.
  std::string limit_flag = "--memory-limit";
  std::function<int64_t(int64_t mebibytes)> limit_of = {};
  // Threads per process, if their number depends on the number of processes.
  std::function<int64_t(int world_size)> threads_of = {};
  // The cores that all processes share; 0 if the run computes on cards, or on
  // machines whose cores are unknown. Predicted times then assume a core for
  // each process.
  int cores = 0;
  // Number formats that may be advised if the run's own format is wider, the
  // best first. Empty if the run's format is fixed.
  std::vector<configs::Precision> precisions = {};
  // Smaller models that may be advised, the largest first. Empty if the run's
  // model is fixed.
  std::vector<std::string> models = {};
  // Seconds of a step on the planned cards; plan_time() if not set.
  std::function<double(const configs::RunConfig&, const plan::Plan&,
                       const std::vector<layers::LayerCost>&)>
      seconds_of = {};
  // A further condition that a plan must meet, if set.
  std::function<bool(const configs::RunConfig&, const plan::Plan&)> admits = {};
  // The whole command with the changes; "" if it is unknown.
  std::function<std::string(const Remedy&)> command_with = {};
};

// Returns remedies, the most useful first. REQUIRES: layers; a request that
// `search` refuses with kNoPlan, or whose plan `scope` does not admit.
std::vector<Remedy> find_remedies(const configs::RunConfig& config,
                                  int world_size, PlanSearch& search,
                                  const RemedyScope& scope);

// Changes with which the usual batch-norm groups fit. REQUIRES: layers;
// shrinks_groups() is true for the request's plan.
std::vector<Remedy> remedies_for_groups(const configs::RunConfig& config,
                                        int world_size,
                                        const ModelOnCard& model,
                                        const RemedyScope& scope);

// A warning that the plan has smaller groups than usual, with their effect and
// changes that avoid them; no value if the groups are not smaller.
std::optional<std::string> smaller_groups_warning(
    const configs::RunConfig& config, const plan::Plan& plan,
    const ModelOnCard& model, const RemedyScope& scope);

// The flags to change, as in "--activations offload".
std::string flags_text(const Remedy& remedy);

// The remedies as text: "use headroom plan … --activations offload (1.9 GiB);
// or --processes 2 (…)".
std::string remedies_text(const std::vector<Remedy>& remedies,
                          const RemedyScope& scope);

// Returns remedies_text() of find_remedies().
std::string remedy_of(const configs::RunConfig& config, int world_size,
                      const std::vector<layers::LayerCost>& layers,
                      const RemedyScope& scope);

}  // namespace headroom::planner
