// stage_cut: between which rows a pipeline is cut, and what its stages cost.
//
// A pipeline is asked for to save memory. So among the cuts whose fullest stage
// needs at most 5 % more than the least that any cut can do, the one whose
// slowest stage is fastest is taken (parallel/plan/stage_partition.h).
//
// The memory is modelled from the table's rows (configs/row_cost.h):
//   weights, gradients, moments, average   once, split as ZeRO splits them
//   maps kept for backward                 per micro-batch in flight; of a
//                                          row's inputs only if recomputed
// It leaves out what comes and goes inside a row, gradients of maps, the loss:
// good enough to compare cuts, no promise of a peak.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/row_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/stage_partition.h"

namespace headroom {

// A full batch's, of a rank. REQUIRES: layout, micro-batch and groups are set.
int64_t num_micro_batches(const RunConfig& config, const Plan& plan);

// REQUIRES: as num_micro_batches(); the activation policy and ZeRO stage too.
PartitionDecision cut_stages(const RunConfig& config, const Plan& plan,
                             const std::vector<RowCost>& rows);

// What the rows of a plan cost each of its pipeline stages.
struct StageShare {
  int64_t begin = 0;  // rows [begin, end)
  int64_t end = 0;
  int64_t parameters = 0;
  double multiply_adds_per_pixel = 0;
  int64_t modelled_bytes = 0;    // of one of its ranks
  double part_of_one_stage = 0;  // of what the rank would need undivided
};
std::vector<StageShare> stage_shares(const RunConfig& config, const Plan& plan,
                                     const std::vector<RowCost>& rows);

}  // namespace headroom
