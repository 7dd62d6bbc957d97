// plan_memory: the memory that a run's plan takes, from its request and the
// model's rows (parallel/plan/memory_model.h).
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/row_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/memory_model.h"
#include "parallel/plan/plan.h"

namespace headroom {

// Boxes per image where the labels are not looked at. More of them in an image
// take about 0.7 KiB per match of 80 classes more.
inline constexpr int64_t kAssumedBoxesPerImage = 100;

std::vector<memory::ModelRow> memory_rows(const std::vector<RowCost>& rows);

// REQUIRES: a plan that the planner accepted for `config`.
MemoryRequest memory_request(const RunConfig& config, const Plan& plan,
                             const std::vector<RowCost>& rows);

// Per rank of the plan's layout.
std::vector<int64_t> predicted_peak_bytes(const MemoryRequest& request);

}  // namespace headroom
