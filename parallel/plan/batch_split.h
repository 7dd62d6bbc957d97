// The way of each sample of a global batch: to which rank, into which
// micro-batch, into which batch-norm group.
//
// The mathematics of a step is fixed before its layout: groups follow from the
// size of the batch alone, ranks and micro-batches only say who computes what.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/batch_norm_groups.h"

namespace headroom::plan {

// How the batches of a run are cut.
struct BatchCut {
  int64_t global_batch_size = 1;  // samples of a full batch
  int data_parallel_size = 1;
  int64_t micro_batch_size = 1;
  BatchNormRule groups;
};

// The samples of a group must be in flight together. So either a rank's whole
// share of a full batch is one micro-batch (then groups may span ranks, which
// exchange statistics), or the micro-batch is a multiple of the group, or no
// less than the largest of even groups (then ranks get whole groups). Returns
// nothing if one of them holds, else the equation that fails.
std::optional<std::string> groups_error(const BatchCut& cut);

// The most samples of a full batch that a rank has at once where its whole
// share is one micro-batch. Shares are nearly equal; those of even groups hold
// whole groups where all ranks can have equally many of them.
int64_t largest_share(int64_t global_batch_size, int data_parallel_size,
                      const BatchNormRule& groups);

// One rank's part of a batch, counted from the batch's first sample.
struct BatchPart {
  SampleRange local;
  // They tile `local`. Equally many on every data rank, so that collectives
  // match; the last ones may be empty.
  std::vector<SampleRange> micro_batches;
};

// REQUIRES: groups_error(cut) is nothing.
BatchPart part_of(const BatchCut& cut, int64_t count,
                  int64_t smallest_map_elements, int data_parallel_rank);

// part_of() of every data rank. REQUIRES: as there.
std::vector<BatchPart> parts_of(const BatchCut& cut, int64_t count,
                                int64_t smallest_map_elements);

// The sizes to which micro-batches can be cut further without another result:
// whole batch-norm groups, about half each time, the largest first. Empty where
// a group is a micro-batch already, or where groups of a full batch span ranks.
std::vector<int64_t> smaller_micro_batches(const BatchCut& cut);

// The reason why there are none; nothing if there are.
std::optional<std::string> smaller_micro_batch_error(const BatchCut& cut);

// part_of() with the same samples in micro-batches of at most
// `micro_batch_size`, or a group where that has more; equally many on every
// data rank. A batch with a group that spans ranks stays as it is: its samples
// must be in flight together. REQUIRES: micro_batch_size is one of
// smaller_micro_batches(cut).
BatchPart part_in_smaller_micro_batches(const BatchCut& cut, int64_t count,
                                        int64_t smallest_map_elements,
                                        int data_parallel_rank,
                                        int64_t micro_batch_size);

// Whether a group of a batch of `count` samples sits on several data ranks.
bool groups_span_ranks(const BatchCut& cut, int64_t count,
                       int64_t smallest_map_elements);

}  // namespace headroom::plan
