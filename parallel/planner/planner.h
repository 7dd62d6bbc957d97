// The planner chooses a run's plan, and proposes changes if no plan fits. The
// same request always gets the same plan. Only the planner decides whether a
// batch can be split, so code that starts processes calls it first.
//
// These functions answer one question each. Several questions about one model
// are faster with one PlanSearch (plan_search.h), which the functions take in
// place of the model.
#pragma once

#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/card_speed.h"
#include "parallel/planner/remedies.h"
#include "parallel/planner/requested_plan.h"

namespace headroom::planner {

// Returns PlanSearch::best(). A refusal because of memory has no remedy.
PlanDecision choose_plan(const configs::RunConfig& config, int world_size,
                         const ModelOnCard& model);

// Like choose_plan(), but a refusal because of memory also names changes that
// would fit (remedies.h), which takes up to a second.
PlanDecision plan_or_remedy(const configs::RunConfig& config, int world_size,
                            const ModelOnCard& model,
                            const RemedyScope& scope = {});
PlanDecision plan_or_remedy(const configs::RunConfig& config, int world_size,
                            PlanSearch& search, const RemedyScope& scope = {});

// Like plan_or_remedy(), but throws a refusal as Error (tag "plan").
plan::Plan plan_or_throw(const configs::RunConfig& config, int world_size,
                         const ModelOnCard& model,
                         const RemedyScope& scope = {});
plan::Plan plan_or_throw(const configs::RunConfig& config, int world_size,
                         PlanSearch& search, const RemedyScope& scope = {});

// Throws if the run has a plan neither on the CPU nor on cards. Call it if the
// device may not be chosen yet.
void require_plan_on_some_device(const configs::RunConfig& config,
                                 int world_size, const ModelOnCard& model,
                                 const RemedyScope& scope = {});

}  // namespace headroom::planner
