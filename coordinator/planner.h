// Planner: which plan a run gets, as a pure function of the request, the number
// of workers and the model's rows.
//
// What is given is obeyed or refused with the equation that fails; what is not
// given is chosen here:
//   layout              all workers on the data axis
//   batch-norm groups   the largest divisor of the batch not above 16
//   micro-batch         a rank's whole share; one group at a time in a pipeline
//                       where a share holds several, so that stages overlap
//   pipeline stages     the slowest has as few multiply-adds as can be
// It alone judges how a batch is split; whoever starts processes asks it first.
//
// Threads: a pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/row_cost.h"
#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/plan/plan.h"

namespace headroom {

// A plan, or a refusal: what disagrees, with both numbers, and what to do.
struct PlanDecision {
  std::optional<Plan> plan;
  std::string reason;                    // of the choice, or of the refusal
  std::string remedy;                    // of a refusal
  ExitCode exit_code = ExitCode::kDone;  // kRequest or kNoPlan if refused
};

// Does the plan depend on the model's rows? So it does with a pipeline or
// spatial axis. Throws Error if --layout is none.
bool plan_needs_rows(const RunConfig& config);

// REQUIRES: world_size >= 1; `rows` are the model's (coordinator/model_rows.h)
// where plan_needs_rows(config). Throws Error if --layout is none.
PlanDecision choose_plan(const RunConfig& config, int world_size,
                         const std::vector<RowCost>& rows);

// The same, a refusal as Error (tag "plan").
Plan plan_or_throw(const RunConfig& config, int world_size,
                   const std::vector<RowCost>& rows);

// Height or width of the network's input: `size` rounded up to whole blocks of
// the model's largest stride, at least two.
int64_t rounded_image_size(int64_t size, int64_t largest_stride);

// What the rows of a plan cost its pipeline stages.
struct StageShare {
  int64_t begin = 0;  // rows [begin, end)
  int64_t end = 0;
  int64_t parameters = 0;
  double multiply_adds_per_pixel = 0;
};
std::vector<StageShare> stage_shares(const Plan& plan,
                                     const std::vector<RowCost>& rows);

}  // namespace headroom
