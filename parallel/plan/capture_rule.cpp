#include "parallel/plan/capture_rule.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace headroom::plan {

std::optional<std::string> capture_error(const Plan& plan,
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
  // A full batch, with more than one cell in the smallest map.
  constexpr int64_t kCells = 2;
  if (groups_span_ranks(cut, cut.global_batch_size, kCells)) {
    return "groups of batch norm span ranks";
  }
  for (int rank = 0; rank < cut.data_parallel_size; ++rank) {
    const std::vector<SampleRange> parts =
        part_of(cut, cut.global_batch_size, kCells, rank).micro_batches;
    if (std::ranges::adjacent_find(parts, std::ranges::not_equal_to(),
                                   &SampleRange::size) != parts.end()) {
      return "a step has micro-batches of several sizes";
    }
  }
  return std::nullopt;
}

}  // namespace headroom::plan
