// The plan under which a run goes on when its workers are more or fewer
// (plan_for_workers), or when one ran out of memory at its leanest
// (plan_after_shortage):
//
//   needed   what the failed plan's fullest rank is predicted to need at its
//            leanest: the last rungs of the memory ladder
//            (worker/memory/memory_ladder.h)
//   bound    5 % less than that; less by what was lacking, and no more than the
//            ranks have room for, as far as that is known
//   next     what the planner chooses under that bound
//
// So every plan needs less than the one before, and a sequence of plans ends.
// The layout and the ZeRO stage stay where the request gives them (--zero 0 is
// no request), and batch-norm groups stay always: they are part of the
// mathematics. Activations and micro-batches, which the ladder has overruled by
// now, are chosen anew.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/base/memory_shortfall.h"
#include "parallel/plan/plan.h"

namespace headroom::planner {

// A step that ran out of memory where nothing leaner was left.
struct MemoryShortage {
  int64_t step = 0;
  int rank = 0;
  MemoryShortfall memory;  // the room is that of any rank
};

// "step 3, rank 1: out of memory with the leanest activations: asked for 2 MiB,
// 1 MiB of the 100 MiB of --memory-limit free".
std::string describe(const MemoryShortage& shortage);

// The fullest rank's bytes in a step, at the leanest that the ladder makes of a
// plan.
// REQUIRES: layers; a plan that the planner accepted for `config`.
int64_t leanest_bytes(const configs::RunConfig& config, const plan::Plan& plan,
                      const std::vector<layers::LayerCost>& layers);

struct Replan {
  std::optional<plan::Plan> plan;
  // Why this plan, or why there is none, with both numbers.
  std::string reason;
  // The flags that --resume needs to go on after a refusal; "" where none would
  // help.
  std::string resume_flags;
};

// `layers` may be empty where the model could not be read: then there is no
// plan.
Replan plan_after_shortage(const configs::RunConfig& config,
                           const plan::Plan& failed,
                           const MemoryShortage& shortage,
                           const std::vector<layers::LayerCost>& layers);

struct ElasticPlan {
  std::optional<plan::Plan> plan;
  std::string reason;  // why this plan, or the last refusal
};

// The plan for the workers that there are. `wanted` is the run's plan where
// everybody is there; a run that has as many workers again gets it back.
//
//   more     `wanted` where --layout asks for one; else one for all of them
//   fewer    one for as many of them as have one, also where a layout was asked
//            for
//
// The global batch and the batch-norm groups stay: they are the run's
// mathematics. ZeRO, micro-batches and policies stay as far as they were asked
// for. REQUIRES: workers >= 1.
ElasticPlan plan_for_workers(const configs::RunConfig& config,
                             const plan::Plan& wanted, int workers,
                             const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::planner
