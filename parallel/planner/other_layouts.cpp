#include "parallel/planner/other_layouts.h"

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/plan_time.h"

namespace headroom::planner {
namespace {

constexpr int kMostPricedProcesses = 64;

}  // namespace

std::vector<OtherLayout> other_layouts(const configs::RunConfig& config,
                                       const plan::Plan& plan,
                                       const ModelOnCard& model) {
  const bool are_priced = plan.layout.world_size() <= kMostPricedProcesses;
  std::optional<double> seconds;
  if (are_priced && plan.backend != plan::Backend::kNccl) {
    seconds = plan_time(config, plan, model).total();
  }
  PlanSearch search(model);
  std::vector<OtherLayout> others;
  for (const plan::ParallelLayout& layout :
       plan::layouts_of(plan.layout.world_size())) {
    if (layout == plan.layout) continue;
    configs::RunConfig asked = config;
    asked.layout = layout;
    OtherLayout& other = others.emplace_back();
    other.layout = layout;
    if (!are_priced && search.any(asked, layout.world_size())) continue;
    const PlanDecision decision = search.best(asked, layout.world_size());
    if (!decision.plan) {
      other.refusal = decision.reason;
    } else if (are_priced) {
      other.cost.emplace().fullest_rank_bytes =
          fullest_rank_bytes(*decision.plan);
      if (seconds) {
        other.cost->relative_time =
            plan_time(asked, *decision.plan, model).total() / *seconds;
      }
    }
  }
  return others;
}

std::string answer_text(const OtherLayout& other) {
  if (!other.refusal.empty()) return "refused: " + other.refusal;
  if (!other.cost) return "possible";
  const std::string bytes =
      "possible: " + format_bytes(other.cost->fullest_rank_bytes) +
      " in the fullest process";
  if (!other.cost->relative_time) return bytes + ", as predicted";
  return bytes + ", " + fixed_text(*other.cost->relative_time, 2) +
         " times this plan's step time, as predicted";
}

}  // namespace headroom::planner
