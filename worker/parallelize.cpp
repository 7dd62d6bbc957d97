#include "worker/parallelize.h"

#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "worker/recompute_runner.h"

namespace headroom {

LayerGraph::RowRange rows_of_stage(const Plan& plan, int stage,
                                   int64_t num_rows) {
  const auto stages = static_cast<int>(plan.stage_begins.size());
  HEADROOM_CHECK(
      stage >= 0 && stage < stages,
      "stage " + std::to_string(stage) + " of " + std::to_string(stages));
  const auto index = static_cast<size_t>(stage);
  const LayerGraph::RowRange rows = {
      plan.stage_begins[index],
      stage + 1 == stages ? num_rows : plan.stage_begins[index + 1]};
  if (rows.begin < 0 || rows.begin >= rows.end || rows.end > num_rows ||
      plan.stage_begins.front() != 0) {
    throw Error("plan",
                "stage " + std::to_string(stage) + " holds rows " +
                    std::to_string(rows.begin) + " to " +
                    std::to_string(rows.end) + " of a model with " +
                    std::to_string(num_rows),
                "leave the plan out: it is chosen anew");
  }
  return rows;
}

StageRoutes routes_of_stage(const LayerGraph& model, const Plan& plan,
                            int stage) {
  return skip_routes(model.inputs(), plan.stage_begins)
      .at(static_cast<size_t>(stage));
}

std::vector<std::unique_ptr<RowRunner>> activation_rungs(const Plan& plan) {
  std::vector<std::unique_ptr<RowRunner>> rungs;
  if (plan.activation_policy == ActivationPolicy::kKeep) {
    rungs.push_back(nullptr);
  }
  rungs.push_back(std::make_unique<RecomputeRunner>());
  return rungs;
}

}  // namespace headroom
