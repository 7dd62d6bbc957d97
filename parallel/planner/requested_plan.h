// The plan of a request without a search: given values are used, or refused
// with the equation that fails; the others get their defaults.
//
//   layout              all workers on the data axis
//   batch-norm groups   equal groups of about 16 (batch_norm_groups.h)
//   micro-batch         a rank's whole share; in a pipeline one group, if a
//                       share has several groups, so that the stages overlap
//   pipeline stages     the least memory, then the fastest (stage_cut.h)
//   activations         kept
//
// Device memory is not considered; plan_search.h chooses the values with which
// a plan fits.
#pragma once

#include <optional>
#include <string>

#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/plan_memory.h"

namespace headroom::planner {

// A plan, or a refusal that names both conflicting numbers and a remedy.
struct PlanDecision {
  std::optional<plan::Plan> plan;
  std::string reason;  // why the plan was chosen, or the request refused
  std::string remedy;  // what to do about a refusal
  ExitCode exit_code = ExitCode::kDone;  // kRequest or kNoPlan if refused
};

// Whether the plan depends on the model's layers: with a pipeline or spatial
// axis, if layers do not keep everything, or with a memory limit.
bool plan_needs_layers(const configs::RunConfig& config);

// The plan has no predicted bytes. A training is also refused (kNoPlan) if its
// loaders need more than --host-memory-limit. REQUIRES: `memory` has the
// model's layers if plan_needs_layers(config).
PlanDecision requested_plan(const configs::RunConfig& config, int world_size,
                            PlanMemory& memory);

// How the run's batches are cut into batch-norm groups: by the rule of the
// resumed run, else by --bn-group or --sync-bn, else by
// usual_batch_norm_rule().
plan::BatchNormRule batch_norm_rule(const configs::RunConfig& config);

// Whether the planner may choose the groups: no flag and no plan fixes them.
bool chooses_batch_norm_groups(const configs::RunConfig& config);

// Whether the plan has smaller groups than usual to fit the memory.
bool shrinks_groups(const configs::RunConfig& config, const plan::Plan& plan);

// The backend that exchanges the run's tensors. auto means NCCL if the ranks
// are on devices, else Gloo. REQUIRES: a backend that the planner admits.
plan::Backend backend_of(const configs::RunConfig& config);

// The plan's choices as text, without its bytes and the memory limit.
std::string reason_of(const configs::RunConfig& config, const plan::Plan& plan);

}  // namespace headroom::planner
