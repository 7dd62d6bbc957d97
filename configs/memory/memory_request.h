// memory_request: what the memory model (parallel/plan/memory_model.h) is to be
// asked for a run, from its configuration, its plan and the model's rows. The
// coordinator asks it for the plan, every worker for each of its steps.
//
// Batches that are prefetched count as the loader's host memory, not here.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/row_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/label_bound.h"
#include "parallel/plan/memory_model.h"
#include "parallel/plan/plan.h"

namespace headroom {

// Boxes per image where the labels are not known. More of them in an image
// take about 0.7 KiB per match of 80 classes more.
inline constexpr int64_t kAssumedBoxesPerImage = 100;

std::vector<memory::ModelRow> memory_rows(const std::vector<RowCost>& rows);

// Images of a validation batch; fewer go through the network at once where
// memory asks for it (Plan::validation_images). 0: nothing is validated.
int64_t validation_batch_size(const RunConfig& config);

// The run's labels, as far as they are known, and its augmentation. Throws
// Error (exit 2) if config.label_counts is of no such form.
LabelBound label_bound(const RunConfig& config);

// The same throws. REQUIRES: a plan that the planner accepted for `config`.
MemoryRequest memory_request(const RunConfig& config, const Plan& plan,
                             const std::vector<RowCost>& rows);

}  // namespace headroom
