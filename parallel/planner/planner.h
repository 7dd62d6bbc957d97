// Planner: chooses a run's plan, as a pure function of the request, the number
// of workers and the model's layers.
//
// Given values are used, or refused with the equation that fails; the others
// are chosen here:
//   layout              all workers on the data axis; under --memory-limit the
//                       fastest that fits (fit_memory.h)
//   batch-norm groups   equal groups of about 16 (batch_norm_groups.h)
//   micro-batch         a rank's whole share; one group at a time in a pipeline
//                       where a share holds several, so that stages overlap
//   pipeline stages     the least memory, then the fastest (stage_cut.h)
//   activations         kept; if that exceeds the memory limit, the fastest
//                       mixture that fits (activation_mixture.h)
// Under --memory-limit they are chosen so that every rank's predicted bytes
// fit. Only the planner decides whether a batch can be split, so code that
// starts processes calls it first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/remedies.h"

namespace headroom::planner {

// A plan, or a refusal that names both conflicting numbers and a remedy.
struct PlanDecision {
  std::optional<plan::Plan> plan;
  std::string reason;                    // why it was chosen, or refused
  std::string remedy;                    // what to do about a refusal
  ExitCode exit_code = ExitCode::kDone;  // kRequest or kNoPlan if refused
};

// Whether the plan depends on the model's layers: with a pipeline or spatial
// axis, if layers do not keep everything, or with a memory limit.
bool plan_needs_layers(const configs::RunConfig& config);

// How complete an answer to compute. Predicting bytes takes milliseconds;
// searching for changes that would fit takes a second.
enum class PlanAnswer {
  kAll,
  kWithoutRemedy,  // no search for changes that would fit
  // Without a limit no predicted bytes; with one, a plan that fits but is not
  // the fastest.
  kWhetherAdmissible,
  kWhetherFits  // any plan that fits, no bytes, no reason
};

// Without layers the plan has no predicted bytes. REQUIRES: world_size >= 1;
// `layers` are the model's (parallel/planner/model_layers.h) if
// plan_needs_layers(config).
PlanDecision choose_plan(const configs::RunConfig& config, int world_size,
                         const std::vector<layers::LayerCost>& layers,
                         PlanAnswer answer = PlanAnswer::kAll);

// Names changes to a request that no plan fits (remedies.h). REQUIRES: layers;
// choose_plan refuses the request with kNoPlan, or `scope` does not admit its
// plan.
std::string remedy_of(const configs::RunConfig& config, int world_size,
                      const std::vector<layers::LayerCost>& layers,
                      const RemedyScope& scope);

// Like choose_plan(), but throws a refusal as Error (tag "plan").
plan::Plan plan_or_throw(const configs::RunConfig& config, int world_size,
                         const std::vector<layers::LayerCost>& layers,
                         const RemedyScope& scope = {});

// For a run whose device may not be chosen yet: throws if neither the CPU nor
// cards have a plan.
void require_plan_on_some_device(const configs::RunConfig& config,
                                 int world_size,
                                 const std::vector<layers::LayerCost>& layers,
                                 const RemedyScope& scope = {});

// How the run's batches are cut into batch-norm groups: as before in a resumed
// run, as --bn-group or --sync-bn say, or as usual.
plan::BatchNormRule batch_norm_rule(const configs::RunConfig& config);

// Whether neither the flags nor a resumed run determine the groups.
bool chooses_batch_norm_groups(const configs::RunConfig& config);

// Whether the plan has smaller groups than usual to fit the memory.
bool shrinks_groups(const configs::RunConfig& config, const plan::Plan& plan);

// Changes with which the usual groups fit. REQUIRES: layers; shrinks_groups()
// of the request's plan.
std::vector<Remedy> remedies_for_groups(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const RemedyScope& scope);

// A warning that the plan has smaller groups than usual, with their effect and
// changes that avoid them; nothing if it has not.
std::optional<std::string> smaller_groups_warning(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers, const RemedyScope& scope);

// The backend that exchanges the run's tensors. auto means NCCL if the ranks
// are on devices, else Gloo. REQUIRES: a backend that choose_plan admits.
plan::Backend backend_of(const configs::RunConfig& config);

// Explains the plan's choices, except for the limit on memory.
std::string reason_of(const configs::RunConfig& config, const plan::Plan& plan);

}  // namespace headroom::planner
