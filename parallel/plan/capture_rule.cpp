#include "parallel/plan/capture_rule.h"

#include <algorithm>

namespace headroom {

std::optional<std::string> why_not_captured(const Plan& plan,
                                            const BatchCut& cut) {
  const ParallelLayout& layout = plan.layout;
  if (layout.pipeline_parallel_size > 1) return "stages exchange maps";
  if (layout.spatial_parallel_size > 1) return "ranks exchange rows of maps";
  if (layout.data_parallel_size > 1 && plan.zero_stage >= 2) {
    return "ZeRO " + std::to_string(plan.zero_stage) +
           " exchanges gradients in every backward";
  }
  if (std::ranges::find(plan.activation_policies, ActivationPolicy::kOffload) !=
      plan.activation_policies.end()) {
    return "offloaded maps go through the host";
  }
  // Of a full batch, with more than one cell in the smallest map.
  if (groups_span_ranks(cut, cut.global_batch_size,
                        /*smallest_map_elements=*/2)) {
    return "groups of batch norm span ranks";
  }
  return std::nullopt;
}

}  // namespace headroom
