// Batch-norm groups: consecutive images of a global batch that share
// statistics. They follow from the number of images and a rule alone, never
// from the layout, so that they are part of a run's mathematics.
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

// Part `index` of `parts` nearly equal consecutive parts of `count` samples;
// the first count % parts ranks hold one more. May be empty.
// REQUIRES: count >= 0, 0 <= index < parts.
SampleRange share_of(int64_t count, int64_t parts, int64_t index);

// Either runs of `size` images with a remainder, or, where `even`, as many
// groups as are nearest to `size` images each, whose sizes differ by at most
// one, the larger first.
struct BatchNormRule {
  int64_t size = 1;
  bool even = false;
  bool operator==(const BatchNormRule&) const = default;
};

// The rule of a run which does not say its own: max(1, round(count / 16))
// groups.
BatchNormRule usual_batch_norm_rule(int64_t global_batch_size);

// The groups of a batch of `count` samples. A group that would have fewer than
// two values per channel in the smallest map, which has `smallest_map_elements`
// (height x width) per sample, is joined to the one before, where there is one.
std::vector<SampleRange> batch_norm_groups(int64_t count,
                                           const BatchNormRule& rule,
                                           int64_t smallest_map_elements);

// The largest group of a batch of `count` samples. REQUIRES: count >= 1.
int64_t largest_group(int64_t count, const BatchNormRule& rule);

// The sizes as a phrase: "16", "19 and 18".
std::string group_sizes_text(int64_t count, const BatchNormRule& rule);

}  // namespace headroom::plan
