#include "worker/step/step_groups.h"

#include <algorithm>

#include "parallel/base/check.h"

namespace headroom::step {

StepGroups groups_of(const GroupRequest& request,
                     plan::SampleRange micro_batch) {
  const std::vector<plan::SampleRange> all = plan::batch_norm_groups(
      request.global_size, request.cut.batch_norm_group_size,
      request.smallest_map_elements);
  StepGroups result;
  result.span_ranks = plan::groups_span_ranks(request.cut, request.global_size,
                                              request.smallest_map_elements);
  for (const plan::SampleRange& group : all) {
    // A group without a sample here is an empty range where it would lie, so
    // that the ranges of all groups tile the micro-batch.
    const auto local_place = [&](int64_t sample) {
      return std::clamp(sample, micro_batch.begin, micro_batch.end) -
             micro_batch.begin;
    };
    BatchNormGroup local;
    local.local_begin = local_place(group.begin);
    local.local_end = local_place(group.end);
    if (local.local_begin == local.local_end && !result.span_ranks) continue;
    local.global_samples = group.size();
    local.counts_here =
        micro_batch.begin <= group.begin && group.begin < micro_batch.end;
    result.groups.push_back(local);
  }
  return result;
}

}  // namespace headroom::step
