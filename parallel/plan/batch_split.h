// Which rank and which micro-batch each sample of a global batch belongs to.
//
// The mathematics of a step does not depend on the layout: batch-norm groups
// follow from the batch size alone; ranks and micro-batches only decide where a
// sample is computed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/batch_norm_groups.h"

namespace headroom::plan {

// How the batches of a run are divided.
struct BatchCut {
  int64_t global_batch_size = 1;  // samples of a full batch
  int data_parallel_size = 1;
  int64_t micro_batch_size = 1;
  BatchNormRule groups;
};

// Checks that the samples of each group can be in flight together. One of these
// must hold: the micro-batch is a rank's whole share of a full batch (then
// groups may span ranks, which exchange statistics); or it is a multiple of the
// group size; or, if groups have nearly equal sizes (BatchNormRule::even), it
// is at least the largest group. In the last two cases ranks get whole groups.
// Returns no value if one holds, else the condition that fails.
std::optional<std::string> groups_error(const BatchCut& cut);

// The largest share of a full batch that a rank has, if its whole share is one
// micro-batch. Shares are nearly equal. With BatchNormRule::even they consist
// of whole groups if the groups can be divided equally among the ranks.
int64_t largest_share(int64_t global_batch_size, int data_parallel_size,
                      const BatchNormRule& groups);

// One rank's part of a batch; positions count from the batch's first sample.
struct BatchPart {
  SampleRange local;
  // The micro-batches together cover `local`. Every data rank has the same
  // number of micro-batches, so that collectives match; the last ones may be
  // empty.
  std::vector<SampleRange> micro_batches;
};

// REQUIRES: groups_error(cut) returns no value.
BatchPart part_of(const BatchCut& cut, int64_t count,
                  int64_t smallest_map_elements, int data_parallel_rank);

// part_of() for every data rank. REQUIRES: as part_of().
std::vector<BatchPart> parts_of(const BatchCut& cut, int64_t count,
                                int64_t smallest_map_elements);

// Smaller micro-batch sizes that give the same results: multiples of the
// largest batch-norm group, each about half of the previous, largest first.
// Empty if a micro-batch is one group already, or if groups span ranks.
std::vector<int64_t> smaller_micro_batches(const BatchCut& cut);

// Why smaller_micro_batches() is empty; no value if it is not.
std::optional<std::string> smaller_micro_batch_error(const BatchCut& cut);

// Like part_of(), but in micro-batches of at most `micro_batch_size` samples,
// or of one group if a group is larger. Every data rank has the same number of
// micro-batches. A batch with a group that spans ranks is not divided further,
// because its samples must be in flight together. REQUIRES: micro_batch_size is
// one of smaller_micro_batches(cut).
BatchPart part_in_smaller_micro_batches(const BatchCut& cut, int64_t count,
                                        int64_t smallest_map_elements,
                                        int data_parallel_rank,
                                        int64_t micro_batch_size);

// A batch-norm group with samples on several data ranks, which are consecutive.
struct SharedGroup {
  int64_t group = 0;  // among all groups of the batch
  int first_rank = 0, last_rank = 0;
  // 0 or 1. No rank shares two groups of one round, so the ranks of a round
  // exchange at the same time. All ranks do round 0 first, so no deadlock is
  // possible.
  int round = 0;
  int num_ranks() const { return last_rank - first_rank + 1; }
  bool operator==(const SharedGroup&) const = default;
};

// The groups that span data ranks, in order of their samples. A rank shares at
// most two: the group of its first sample and the group of its last.
// REQUIRES: as part_of().
std::vector<SharedGroup> shared_groups(const BatchCut& cut, int64_t count,
                                       int64_t smallest_map_elements);

// Whether some group of a batch of `count` samples spans several data ranks.
bool groups_span_ranks(const BatchCut& cut, int64_t count,
                       int64_t smallest_map_elements);

}  // namespace headroom::plan
