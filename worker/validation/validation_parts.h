// validation_parts: a validation batch, cut into what goes through the network
// at once. Its images, and so what the network sees of them, stay the same; its
// losses are means over the whole batch.
//
// Threads: pure functions.
#pragma once

#include <vector>

#include "worker/data/loader/batch.h"
#include "worker/loss/detection_loss.h"

namespace headroom::validation {

// Of the whole batch.
loss::GlobalCounts counts_of(const loader::Batch& batch);

// One per micro-batch; pixels are shared with the batch. Faults stay behind.
std::vector<loader::Batch> parts_of(const loader::Batch& batch);

}  // namespace headroom::validation
