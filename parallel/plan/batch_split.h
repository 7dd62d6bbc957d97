// Which samples of a global batch go where: to which rank, into which
// micro-batch, into which batch-norm group. Pure.
//
// The mathematics of a step is fixed before its layout: groups follow from the
// size of the batch alone, ranks and micro-batches only say who computes what.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headroom {

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
SampleRange share_of(int64_t count, int parts, int index);

// The default group: the largest divisor of the global batch not above 16.
int64_t default_batch_norm_group_size(int64_t global_batch_size);

// The groups of a batch of `count` samples: consecutive runs of `group_size`;
// a remainder forms a group of its own, joined to the one before when it would
// leave fewer than two values per channel in the smallest map, which has
// `smallest_map_elements` (height x width) per sample.
std::vector<SampleRange> batch_norm_groups(int64_t count, int64_t group_size,
                                           int64_t smallest_map_elements);

// Can micro-batches of `micro_batch_size` on `data_parallel_size` ranks hold
// every group of a full batch at once? Either the micro-batch is a multiple of
// the group and groups do not straddle ranks, or each rank's whole share is
// one micro-batch. Nothing if so, else the equation that fails.
std::optional<std::string> why_groups_do_not_fit(int64_t global_batch_size,
                                                 int data_parallel_size,
                                                 int64_t micro_batch_size,
                                                 int64_t group_size);

// The micro-batches of one rank's share `local` of a batch.
std::vector<SampleRange> micro_batches(SampleRange local,
                                       int64_t micro_batch_size);

}  // namespace headroom
