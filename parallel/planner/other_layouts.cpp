#include "parallel/planner/other_layouts.h"

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

constexpr int kMostPricedProcesses = 64;

}  // namespace

std::vector<OtherLayout> other_layouts(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers) {
  const bool are_priced = plan.layout.world_size() <= kMostPricedProcesses;
  std::vector<OtherLayout> others;
  for (const plan::ParallelLayout& layout :
       plan::layouts_of(plan.layout.world_size())) {
    if (layout == plan.layout) continue;
    configs::RunConfig asked = config;
    asked.layout = layout;
    const PlanDecision decision =
        choose_plan(asked, layout.world_size(), layers,
                    are_priced ? PlanAnswer::kWithoutRemedy
                               : PlanAnswer::kWhetherAdmissible);
    OtherLayout& other = others.emplace_back();
    other.layout = layout;
    if (!decision.plan) {
      other.refusal = decision.reason;
    } else if (are_priced) {
      other.cost = {fullest_rank_bytes(*decision.plan),
                    plan_time(asked, *decision.plan, layers).total() /
                        plan_time(config, plan, layers).total()};
    }
  }
  return others;
}

std::string answer_text(const OtherLayout& other) {
  if (!other.refusal.empty()) return "refused: " + other.refusal;
  if (!other.cost) return "possible";
  return "possible: " + format_bytes(other.cost->fullest_rank_bytes) +
         " in the fullest process and " +
         fixed_text(other.cost->relative_time, 2) +
         " times the time of a step, as predicted";
}

}  // namespace headroom::planner
