#include "parallel/planner/planner.h"

#include "parallel/base/device_list.h"
#include "parallel/planner/plan_search.h"

namespace headroom::planner {

PlanDecision choose_plan(const configs::RunConfig& config, int world_size,
                         const ModelOnCard& model) {
  return PlanSearch(model).best(config, world_size);
}

PlanDecision plan_or_remedy(const configs::RunConfig& config, int world_size,
                            const ModelOnCard& model,
                            const RemedyScope& scope) {
  PlanSearch search(model);
  return plan_or_remedy(config, world_size, search, scope);
}

PlanDecision plan_or_remedy(const configs::RunConfig& config, int world_size,
                            PlanSearch& search, const RemedyScope& scope) {
  PlanDecision decision = search.best(config, world_size);
  if (decision.exit_code == ExitCode::kNoPlan) {
    decision.remedy =
        remedies_text(find_remedies(config, world_size, search, scope), scope);
  }
  return decision;
}

plan::Plan plan_or_throw(const configs::RunConfig& config, int world_size,
                         const ModelOnCard& model, const RemedyScope& scope) {
  PlanSearch search(model);
  return plan_or_throw(config, world_size, search, scope);
}

plan::Plan plan_or_throw(const configs::RunConfig& config, int world_size,
                         PlanSearch& search, const RemedyScope& scope) {
  const PlanDecision decision =
      plan_or_remedy(config, world_size, search, scope);
  if (decision.plan) return *decision.plan;
  throw Error("plan", decision.reason, decision.remedy, decision.exit_code);
}

void require_plan_on_some_device(const configs::RunConfig& config,
                                 int world_size, const ModelOnCard& model,
                                 const RemedyScope& scope) {
  if (is_automatic_device(config.device)) {
    configs::RunConfig on_cards = config;
    on_cards.device = kAllCards;
    if (on_cards.precision == configs::Precision::kAuto) {
      on_cards.precision = configs::Precision::kBf16;
    }
    if (choose_plan(on_cards, world_size, model).plan) return;
  }
  plan_or_throw(config, world_size, model, scope);
}

}  // namespace headroom::planner
