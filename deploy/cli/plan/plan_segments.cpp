#include "deploy/cli/plan/plan_segments.h"

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/planner/planner.h"
#include "parallel/predict/memory_request.h"

namespace headroom::cli {

namespace {

// Returns the segments of the stage that needs the most memory, or of the first
// stage that does not fit.
PlanSegments fullest_segments(const configs::RunConfig& config,
                              const std::vector<layers::LayerCost>& layers,
                              const plan::Plan& plan, int64_t room_bytes) {
  const predict::MemoryRequest request =
      predict::memory_request(config, plan, layers);
  PlanSegments fullest;
  fullest.room_bytes = room_bytes;
  for (int stage = 0; stage < plan.layout.pipeline_parallel_size; ++stage) {
    plan::MeshCoordinates rank;
    rank.pipeline_stage = stage;
    const predict::SegmentEstimate estimate =
        predict::estimate_segments(request, rank, fullest.room_bytes);
    if (estimate.fits &&
        estimate.segment_bytes <= fullest.estimate.segment_bytes) {
      continue;
    }
    fullest.stage = stage;
    fullest.estimate = estimate;
    if (!estimate.fits) break;
  }
  return fullest;
}

}  // namespace

PlanSegments segments_of(const configs::RunConfig& config,
                         const std::vector<layers::LayerCost>& layers,
                         const plan::Plan& plan, int64_t room_bytes,
                         const planner::RemedyScope* remedies) {
  const PlanSegments fullest =
      fullest_segments(config, layers, plan, room_bytes);
  if (fullest.estimate.fits) return fullest;
  throw Error(
      "plan",
      cat("the tensors of stage ", fullest.stage,
          " fit, but the "
          "segments that the caching allocator cuts them from do not: ",
          exact_bytes(fullest.room_bytes), " are there for them"),
      remedies != nullptr
          ? planner::remedy_of(config, plan.layout.world_size(), layers,
                               *remedies)
          : cat("leave more of the card to it with --memory-limit below ",
                config.memory_limit),
      ExitCode::kNoPlan);
}

bool segments_fit(const configs::RunConfig& config,
                  const std::vector<layers::LayerCost>& layers,
                  const plan::Plan& plan, int64_t room_bytes) {
  return fullest_segments(config, layers, plan, room_bytes).estimate.fits;
}

std::string segments_text(const PlanSegments& segments) {
  const predict::SegmentEstimate& estimate = segments.estimate;
  const std::string ratio =
      fixed_text(static_cast<double>(estimate.segment_bytes) /
                     static_cast<double>(estimate.tensor_bytes),
                 3);
  return cat(
      "\nSegments of the caching allocator, in a step of a rank of stage ",
      segments.stage, ": ", format_bytes(estimate.segment_bytes), " for ",
      format_bytes(estimate.tensor_bytes), " of tensors (", ratio, " x); ",
      format_bytes(segments.room_bytes), " are there for them\n");
}

}  // namespace headroom::cli
