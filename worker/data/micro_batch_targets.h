// Target assignment of a batch, micro-batch by micro-batch.
#pragma once

#include "worker/data/batch.h"
#include "worker/data/loader_options.h"

namespace headroom {

// Fills batch.targets: one entry per micro-batch of the rank's samples, one
// even without samples. Does nothing without `assign`.
// REQUIRES: batch.images is set, batch.labels are in order of `image`.
void assign_micro_batches(Batch& batch, int64_t micro_batch_size,
                          const AssignTargets& assign);

}  // namespace headroom
