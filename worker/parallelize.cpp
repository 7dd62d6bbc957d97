#include "worker/parallelize.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "worker/activation_runner.h"

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

std::vector<std::unique_ptr<RowRunner>> activation_rungs(
    const Plan& plan, int64_t num_rows, int64_t host_memory_limit) {
  ActivationRunner::Options options;
  options.policies = plan.activation_policies;
  if (options.policies.empty()) {
    options.policies.assign(static_cast<size_t>(num_rows),
                            ActivationPolicy::kKeep);
  }
  if (static_cast<int64_t>(options.policies.size()) != num_rows) {
    throw Error("plan",
                std::to_string(options.policies.size()) +
                    " activation policies for a model of " +
                    std::to_string(num_rows) + " rows",
                "leave the plan out: it is chosen anew");
  }
  options.rows_join = plan.zero_stage < 3;
  options.host_memory_limit = host_memory_limit;
  const auto count = [&options](ActivationPolicy policy) {
    return std::ranges::count(options.policies, policy);
  };
  std::vector<std::unique_ptr<RowRunner>> rungs;
  if (count(ActivationPolicy::kKeep) == num_rows) {
    rungs.push_back(nullptr);
  } else {
    rungs.push_back(std::make_unique<ActivationRunner>(options));
  }
  if (count(ActivationPolicy::kKeep) + count(ActivationPolicy::kLean) > 0) {
    for (ActivationPolicy& policy : options.policies) {
      if (policy != ActivationPolicy::kOffload)
        policy = ActivationPolicy::kRecompute;
    }
    rungs.push_back(std::make_unique<ActivationRunner>(std::move(options)));
  }
  return rungs;
}

}  // namespace headroom
