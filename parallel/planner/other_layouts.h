// Lists the other layouts that are possible with a plan's processes, and the
// cost of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/card_speed.h"

namespace headroom::planner {

struct OtherLayout {
  plan::ParallelLayout layout;
  std::string refusal;  // "" if the layout is possible
  struct Cost {
    int64_t fullest_rank_bytes = 0;
    // Predicted step time (plan_time) divided by the plan's step time. Empty if
    // the backend is NCCL: the time model describes processor cores, not cards.
    std::optional<double> relative_time;
  };
  std::optional<Cost> cost;  // set if the layout is possible
};

// Returns all layouts except the plan's. Above 64 processes the layouts have no
// cost, because computing it would take long. REQUIRES: a plan that
// choose_plan() returned for `config` and these layers.
std::vector<OtherLayout> other_layouts(const configs::RunConfig& config,
                                       const plan::Plan& plan,
                                       const ModelOnCard& model);

// The answer as text: "possible: 1.79 GiB in the fullest process, 1.10 times
// this plan's step time, as predicted", or "refused: ...".
std::string answer_text(const OtherLayout& other);

}  // namespace headroom::planner
