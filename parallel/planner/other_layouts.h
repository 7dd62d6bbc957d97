// The other ways to lay out the processes of a plan, and what each would cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan.h"

namespace headroom::planner {

struct OtherLayout {
  plan::ParallelLayout layout;
  std::string refusal;  // "": train would take it
  struct Cost {
    int64_t fullest_rank_bytes = 0;
    // The modelled time of a step (plan_time), that of the plan being 1.
    // Nothing over NCCL: the model is of processor cores.
    std::optional<double> relative_time;
  };
  std::optional<Cost> cost;  // set where train would take it
};

// All but the plan's own. What they cost is left out for more than 64
// processes: finding it takes long. REQUIRES: a plan that choose_plan() gave
// for `config` and these layers.
std::vector<OtherLayout> other_layouts(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers);

// "possible: 1.79 GiB in the fullest process, 1.10 times this plan's step time,
// as predicted", or "refused: ...".
std::string answer_text(const OtherLayout& other);

}  // namespace headroom::planner
