#include "parallel/planner/plan_match.h"

#include <cstdint>

#include "parallel/plan/layout.h"
#include "parallel/plan/stage_begins.h"

namespace headroom::planner {

plan::BatchCut batch_cut(const configs::RunConfig& config,
                         const plan::Plan& plan) {
  return {config.global_batch_size, plan.layout.data_parallel_size,
          plan.micro_batch_size, plan.batch_norm_group_size};
}

std::string plan_match_error(const configs::RunConfig& config,
                             const plan::Plan& plan, int world_size,
                             size_t num_layers) {
  if (plan.layout.world_size() != world_size) {
    return plan::to_string(plan.layout) + " is for " +
           std::to_string(plan.layout.world_size()) +
           " processes, and there are " + std::to_string(world_size);
  }
  if (const auto why = plan::groups_error(batch_cut(config, plan))) {
    return *why;
  }
  if (const auto why = plan::stage_begins_error(
          plan.stage_begins, plan.layout.pipeline_parallel_size)) {
    return *why;
  }
  if (num_layers == 0) return "";
  const bool has_all_layers =
      plan.stage_begins.back() < static_cast<int64_t>(num_layers) &&
      (plan.activation_policies.empty() ||
       plan.activation_policies.size() == num_layers);
  if (!has_all_layers) {
    return "it is for a model of another number of layers than " +
           std::to_string(num_layers);
  }
  return "";
}

}  // namespace headroom::planner
