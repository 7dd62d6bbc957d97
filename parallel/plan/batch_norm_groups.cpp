#include "parallel/plan/batch_norm_groups.h"

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/plan/group_places.h"

namespace headroom::plan {
namespace {

constexpr int64_t kUsualGroup = 16;

// The groups if the smallest map has several cells, so that no groups are
// joined.
GroupPlaces groups_of_large_maps(int64_t count, const BatchNormRule& rule) {
  return {count, rule, /*smallest_map_elements=*/2};
}

}  // namespace

SampleRange share_of(int64_t count, int64_t parts, int64_t index) {
  HEADROOM_CHECK(count >= 0 && index >= 0 && index < parts,
                 cat("part ", index, " of ", parts, " of ", count));
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
  const GroupPlaces places(count, rule, smallest_map_elements);
  std::vector<SampleRange> groups;
  for (int64_t i = 0; i < places.size(); ++i) groups.push_back(places[i]);
  return groups;
}

int64_t largest_group(int64_t count, const BatchNormRule& rule) {
  return groups_of_large_maps(count, rule)[0].size();
}

std::string group_sizes_text(int64_t count, const BatchNormRule& rule) {
  const GroupPlaces groups = groups_of_large_maps(count, rule);
  const int64_t first = groups[0].size();
  const int64_t last = groups[groups.size() - 1].size();
  return cat(first, last == first ? "" : cat(" and ", last));
}

}  // namespace headroom::plan
