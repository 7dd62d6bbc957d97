// The segments that a GPU's caching allocator needs for a plan's tensors.
// `headroom plan` shows them beside the plan, and refuses a plan whose tensors
// fit but whose segments do not.
#pragma once

#include <cstdint>
#include <string>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/remedies.h"
#include "parallel/predict/memory_model.h"

namespace headroom::cli {

struct PlanSegments {
  int stage = 0;  // the stage whose ranks need the most
  predict::SegmentEstimate estimate;
  int64_t room_bytes = 0;  // available for segments, without the reserve
};

// The segments of a plan on GPUs with `room_bytes` for them
// (PlanMachines::segment_room). Throws Error (exit 3) if they do not fit. Give
// `remedies` when planning for GPUs of other machines; nullptr for this
// machine's cards.
PlanSegments segments_of(const configs::RunConfig& config,
                         const std::vector<layers::LayerCost>& layers,
                         const plan::Plan& plan, int64_t room_bytes,
                         const planner::RemedyScope* remedies = nullptr);

bool segments_fit(const configs::RunConfig& config,
                  const std::vector<layers::LayerCost>& layers,
                  const plan::Plan& plan, int64_t room_bytes);

std::string segments_text(const PlanSegments& segments);

}  // namespace headroom::cli
