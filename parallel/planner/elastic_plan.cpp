#include "parallel/planner/elastic_plan.h"

#include "parallel/base/check.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {

ElasticPlan plan_for_workers(const configs::RunConfig& config,
                             const plan::Plan& wanted, int workers,
                             const std::vector<layers::LayerCost>& layers) {
  HEADROOM_CHECK(workers >= 1, std::to_string(workers) + " workers");
  const int asked = wanted.layout.world_size();
  const bool keeps = workers == asked || (workers > asked && config.layout);
  if (keeps) return {wanted, wanted.reason};
  configs::RunConfig open = config;
  open.layout.reset();
  open.sync_batch_norm = false;
  open.batch_norm_group_size = wanted.batch_norm_group_size;
  ElasticPlan found;
  for (int count = workers; count >= 1; --count) {
    if (count == asked) return {wanted, wanted.reason};
    const PlanDecision decision = choose_plan(open, count, layers);
    found.reason = decision.reason;
    if (!decision.plan) continue;
    found.plan = decision.plan;
    break;
  }
  return found;
}

}  // namespace headroom::planner
