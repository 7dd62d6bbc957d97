// plan_memory: the memory that a run's plan takes, rank by rank.
//
// Threads: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/memory/memory_request.h"
#include "parallel/plan/memory_model.h"

namespace headroom {

// Per rank of the plan's layout.
std::vector<int64_t> predicted_peak_bytes(const MemoryRequest& request);

// Of the rank that needs most. REQUIRES: a plan with predicted bytes.
int64_t fullest_rank_bytes(const Plan& plan);

}  // namespace headroom
