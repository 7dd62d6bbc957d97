// Batch-norm groups: consecutive images of a global batch that share batch-norm
// statistics. The groups depend only on the number of images and a rule, never
// on the layout, so a run has the same results under every layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::plan {

// Samples [begin, end) of a global batch, counted from its first.
struct SampleRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const SampleRange&) const = default;
};

// Part `index` of `parts` nearly equal consecutive parts of `count` samples.
// The first count % parts parts have one sample more; a part may be empty.
// REQUIRES: count >= 0, 0 <= index < parts.
SampleRange share_of(int64_t count, int64_t parts, int64_t index);

// If not `even`: groups of `size` images, and a smaller last group if images
// remain. If `even`: the number of groups is the one whose mean group size is
// nearest to `size`; group sizes differ by at most one, and larger groups come
// first. A larger `size` makes statistics smoother, but needs that many images
// in flight together.
struct BatchNormRule {
  int64_t size = 1;
  bool even = false;
  bool operator==(const BatchNormRule&) const = default;
};

// The default rule of a run: groups of nearly equal size (`even`), about 16
// images each; at least one group.
BatchNormRule usual_batch_norm_rule(int64_t global_batch_size);

// The groups of a batch of `count` samples. If a group has fewer than two
// values per channel in the smallest map, it is joined to the previous group,
// if there is one. The smallest map has `smallest_map_elements` (height x
// width) per sample.
std::vector<SampleRange> batch_norm_groups(int64_t count,
                                           const BatchNormRule& rule,
                                           int64_t smallest_map_elements);

// The largest group of a batch of `count` samples. REQUIRES: count >= 1.
int64_t largest_group(int64_t count, const BatchNormRule& rule);

// The group sizes as text: "16", or "19 and 18".
std::string group_sizes_text(int64_t count, const BatchNormRule& rule);

}  // namespace headroom::plan
