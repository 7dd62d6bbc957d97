// Target assignment of a batch, micro-batch by micro-batch.
#pragma once

#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"

namespace headroom::loader {

// The labels of samples `part` of the batch, `image` counting from its first.
std::vector<loss::LabelRow> labels_of(const Batch& batch,
                                      const plan::SampleRange& part);

// Fills batch.targets: one entry per micro-batch. Does nothing without
// `assign`.
// REQUIRES: everything else of the batch is set, its labels in order of
// `image`.
void assign_micro_batches(Batch& batch, const AssignTargets& assign);

}  // namespace headroom::loader
