// elastic_plan: which plan a run goes on under with the workers that there are.
//
//   as many as the run wants    its own plan, whatever came between
//   more                        its own plan where --layout asks for one; else
//                               one for all of them
//   fewer                       one for as many of them as have one, also where
//                               a layout was asked for
//
// The global batch and the batch-norm groups stay: they are the run's
// mathematics. ZeRO, micro-batches and policies stay as far as they were asked
// for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom::planner {

struct ElasticPlan {
  std::optional<plan::Plan> plan;
  std::string reason;  // of the plan, or of the last refusal
};

// `wanted`: the run's plan where everybody is there. REQUIRES: workers >= 1.
ElasticPlan plan_for_workers(const configs::RunConfig& config,
                             const plan::Plan& wanted, int workers,
                             const std::vector<layers::LayerCost>& layers);

}  // namespace headroom::planner
