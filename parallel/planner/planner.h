// Planner: which plan a run gets, as a pure function of the request, the number
// of workers and the model's layers.
//
// What is given is obeyed or refused with the equation that fails; what is not
// given is chosen here:
//   layout              all workers on the data axis; under --memory-limit the
//                       fastest that fits (fit_memory.h)
//   batch-norm groups   even ones of about 16 (batch_norm_groups.h)
//   micro-batch         a rank's whole share; one group at a time in a pipeline
//                       where a share holds several, so that stages overlap
//   pipeline stages     the least memory, then the fastest (stage_cut.h)
//   activations         kept; where that does not fit the limit on memory, the
//                       fastest mixture that does (activation_mixture.h)
// Under --memory-limit what is not given is chosen so that the predicted bytes
// of every rank fit (fit_memory.h).
// It alone judges how a batch is split; whoever starts processes asks it first.
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

// A plan, or a refusal: what disagrees, with both numbers, and what to do.
struct PlanDecision {
  std::optional<plan::Plan> plan;
  std::string reason;                    // why it was chosen, or refused
  std::string remedy;                    // what to do about a refusal
  ExitCode exit_code = ExitCode::kDone;  // kRequest or kNoPlan if refused
};

// Whether the plan depends on the model's layers, as with a pipeline or spatial
// axis, where layers do not keep everything, or with a memory limit.
bool plan_needs_layers(const configs::RunConfig& config);

// What an answer is wanted for. Predicting bytes takes milliseconds, finding
// what would fit instead of a request that does not takes a second.
enum class PlanAnswer {
  kAll,
  kWithoutRemedy,  // a refusal for want of memory does not say what fits
  // Predicted bytes are left out where there is no limit; where there is one,
  // the plan fits and is not the fastest.
  kWhetherAdmissible,
  kWhetherFits  // any plan that fits, without bytes; a refusal has no reason
};

// The plan has no predicted bytes without layers.
// REQUIRES: world_size >= 1; `layers` are the model's
// (parallel/planner/model_layers.h) where plan_needs_layers(config).
PlanDecision choose_plan(const configs::RunConfig& config, int world_size,
                         const std::vector<layers::LayerCost>& layers,
                         PlanAnswer answer = PlanAnswer::kAll);

// What to change about a request that no plan fits (remedies.h).
// REQUIRES: layers; a request that choose_plan refuses with kNoPlan, or whose
// plan `scope` does not admit.
std::string remedy_of(const configs::RunConfig& config, int world_size,
                      const std::vector<layers::LayerCost>& layers,
                      const RemedyScope& scope);

// The same plan, but a refusal is thrown as Error (tag "plan").
plan::Plan plan_or_throw(const configs::RunConfig& config, int world_size,
                         const std::vector<layers::LayerCost>& layers,
                         const RemedyScope& scope = {});

// The same for a run whose device may not be settled yet: refuses where neither
// the CPU nor cards have a plan.
void require_plan_on_some_device(const configs::RunConfig& config,
                                 int world_size,
                                 const std::vector<layers::LayerCost>& layers,
                                 const RemedyScope& scope = {});

// How the run's batches are cut into batch-norm groups: as the run that goes on
// began, as --bn-group or --sync-bn say, or as usual.
plan::BatchNormRule batch_norm_rule(const configs::RunConfig& config);

// Whether nothing says how.
bool chooses_batch_norm_groups(const configs::RunConfig& config);

// Whether a plan has smaller groups than usual, because no others fit.
bool shrinks_groups(const configs::RunConfig& config, const plan::Plan& plan);

// What to change so that the usual groups fit.
// REQUIRES: layers; shrinks_groups() of the plan that the request gets.
std::vector<Remedy> remedies_for_groups(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const RemedyScope& scope);

// What it means that a plan has smaller groups than usual, and what would keep
// the usual ones; nothing where it has not.
std::optional<std::string> smaller_groups_warning(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers, const RemedyScope& scope);

// What the ranks of a run exchange tensors with. For auto that is NCCL where
// they are on devices, else Gloo. REQUIRES: a backend that choose_plan admits.
plan::Backend backend_of(const configs::RunConfig& config);

// Why a plan is as it is, apart from the limit on memory.
std::string reason_of(const configs::RunConfig& config, const plan::Plan& plan);

}  // namespace headroom::planner
