#include "parallel/plan/batch_norm_groups.h"

#include <algorithm>

#include "parallel/base/check.h"

namespace headroom::plan {
namespace {

constexpr int64_t kUsualGroup = 16;

// The groups of images whose smallest map has several cells.
std::vector<SampleRange> groups_of_large_maps(int64_t count,
                                              const BatchNormRule& rule) {
  return batch_norm_groups(count, rule, /*smallest_map_elements=*/2);
}

// Groups of even sizes: two values a channel in each, where the batch has them.
int64_t num_even_groups(int64_t count, const BatchNormRule& rule,
                        int64_t smallest_map_elements) {
  const int64_t least = smallest_map_elements < 2 ? 2 : 1;
  const int64_t most_groups = std::max<int64_t>(1, count / least);
  const int64_t nearest = (2 * count + rule.size) / (2 * rule.size);
  return std::clamp<int64_t>(nearest, 1, most_groups);
}

}  // namespace

SampleRange share_of(int64_t count, int64_t parts, int64_t index) {
  HEADROOM_CHECK(count >= 0 && index >= 0 && index < parts,
                 "part " + std::to_string(index) + " of " +
                     std::to_string(parts) + " of " + std::to_string(count));
  const int64_t base = count / parts;
  const int64_t extra = count % parts;
  const int64_t begin = index * base + std::min(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

BatchNormRule usual_batch_norm_rule(int64_t global_batch_size) {
  return {std::min(kUsualGroup, global_batch_size), true};
}

std::vector<SampleRange> batch_norm_groups(int64_t count,
                                           const BatchNormRule& rule,
                                           int64_t smallest_map_elements) {
  std::vector<SampleRange> groups;
  if (rule.even && count > 0) {
    const int64_t num_groups =
        num_even_groups(count, rule, smallest_map_elements);
    groups.reserve(static_cast<size_t>(num_groups));
    for (int64_t i = 0; i < num_groups; ++i) {
      groups.push_back(share_of(count, num_groups, i));
    }
    return groups;
  }
  for (int64_t begin = 0; begin < count; begin += rule.size) {
    groups.push_back({begin, std::min(begin + rule.size, count)});
  }
  if (groups.size() > 1 && groups.back().size() * smallest_map_elements < 2) {
    const int64_t end = groups.back().end;
    groups.pop_back();
    groups.back().end = end;
  }
  return groups;
}

int64_t largest_group(int64_t count, const BatchNormRule& rule) {
  if (rule.even && count > 0) {
    return share_of(count, num_even_groups(count, rule, 2), 0).size();
  }
  return groups_of_large_maps(count, rule).front().size();
}

std::string group_sizes_text(int64_t count, const BatchNormRule& rule) {
  const std::vector<SampleRange> groups = groups_of_large_maps(count, rule);
  const int64_t first = groups.front().size();
  const int64_t last = groups.back().size();
  return std::to_string(first) +
         (last == first ? "" : " and " + std::to_string(last));
}

}  // namespace headroom::plan
