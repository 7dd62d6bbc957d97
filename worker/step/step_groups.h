// step_groups: how the batch-norm groups of a global batch look from one
// micro-batch of one rank.
//
// Groups follow from the size of the batch alone (parallel/plan/batch_split.h).
// When none straddles two ranks, a micro-batch sees its own and nothing is
// exchanged; when one does, every rank lists all of them and sums are
// exchanged.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/plan/batch_split.h"
#include "worker/model/step_context.h"

namespace headroom::step {

struct GroupRequest {
  plan::BatchCut cut;
  int64_t global_size = 0;            // samples of this global batch
  int64_t smallest_map_elements = 0;  // height x width at the largest stride
};

struct StepGroups {
  std::vector<BatchNormGroup> groups;
  bool span_ranks = false;
};

// `micro_batch` in samples of the global batch; may be empty.
// REQUIRES: it is one of part_of() for some rank.
StepGroups groups_of(const GroupRequest& request,
                     plan::SampleRange micro_batch);

}  // namespace headroom::step
