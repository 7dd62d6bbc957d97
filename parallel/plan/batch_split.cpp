#include "parallel/plan/batch_split.h"

#include <algorithm>

#include "parallel/base/check.h"

namespace headroom {

SampleRange share_of(int64_t count, int parts, int index) {
  HEADROOM_CHECK(count >= 0 && index >= 0 && index < parts,
                 "part " + std::to_string(index) + " of " +
                     std::to_string(parts) + " of " + std::to_string(count));
  const int64_t base = count / parts;
  const int64_t extra = count % parts;
  const int64_t begin = index * base + std::min<int64_t>(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

int64_t default_batch_norm_group_size(int64_t global_batch_size) {
  int64_t group = std::min<int64_t>(16, global_batch_size);
  while (global_batch_size % group != 0) --group;
  return group;
}

std::vector<SampleRange> batch_norm_groups(int64_t count, int64_t group_size,
                                           int64_t smallest_map_elements) {
  std::vector<SampleRange> groups;
  for (int64_t begin = 0; begin < count; begin += group_size) {
    groups.push_back({begin, std::min(begin + group_size, count)});
  }
  if (groups.size() > 1 && groups.back().size() * smallest_map_elements < 2) {
    const int64_t end = groups.back().end;
    groups.pop_back();
    groups.back().end = end;
  }
  return groups;
}

std::optional<std::string> why_groups_do_not_fit(int64_t global_batch_size,
                                                 int data_parallel_size,
                                                 int64_t micro_batch_size,
                                                 int64_t group_size) {
  const int64_t largest_share =
      share_of(global_batch_size, data_parallel_size, 0).size();
  if (micro_batch_size >= largest_share) return std::nullopt;
  const bool even = global_batch_size % data_parallel_size == 0;
  if (even && micro_batch_size % group_size == 0 &&
      largest_share % group_size == 0) {
    return std::nullopt;
  }
  return "micro_batch_size " + std::to_string(micro_batch_size) +
         " is neither a multiple of batch_norm_group_size " +
         std::to_string(group_size) + " with whole groups per rank (" +
         std::to_string(global_batch_size) + " images / " +
         std::to_string(data_parallel_size) +
         " ranks), nor a rank's whole share of " +
         std::to_string(largest_share);
}

std::vector<SampleRange> micro_batches(SampleRange local,
                                       int64_t micro_batch_size) {
  std::vector<SampleRange> parts;
  for (int64_t begin = local.begin; begin < local.end;
       begin += micro_batch_size) {
    parts.push_back({begin, std::min(begin + micro_batch_size, local.end)});
  }
  // A rank without samples still takes part in every collective of the step.
  if (parts.empty()) parts.push_back(local);
  return parts;
}

}  // namespace headroom
