// Planner: which plan a run gets, as a pure function of request and world size.
//
// What is given is obeyed or refused; what is not given is chosen here. This
// version splits over the data axis only.
//
// Threads: a pure function.
#pragma once

#include <optional>
#include <string>

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

// REQUIRES: world_size >= 1.
PlanDecision choose_plan(const RunConfig& config, int world_size);

// The same, a refusal as Error (tag "plan").
Plan plan_or_throw(const RunConfig& config, int world_size);

}  // namespace headroom
