// What the caching allocator of a GPU makes of a plan's tensors: `headroom
// plan` for GPUs says it beside the plan, and refuses a plan whose segments do
// not fit although its tensors do.
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
  int64_t room_bytes = 0;  // a GPU's room, the reserve excluded
};

// The segments of a plan on GPUs that have so much room for them
// (PlanMachines::segment_room). Throws Error (exit 3) if its segments do not
// fit; `remedies` are those of a plan for GPUs that are not here.
PlanSegments segments_of(const configs::RunConfig& config,
                         const std::vector<layers::LayerCost>& layers,
                         const plan::Plan& plan, int64_t room_bytes,
                         const planner::RemedyScope* remedies = nullptr);

bool segments_fit(const configs::RunConfig& config,
                  const std::vector<layers::LayerCost>& layers,
                  const plan::Plan& plan, int64_t room_bytes);

std::string segments_text(const PlanSegments& segments);

}  // namespace headroom::cli
