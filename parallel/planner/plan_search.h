// PlanSearch: chooses a run's plan among all candidates. A candidate is a
// complete request (requested_plan.h): the given flags, and a value for each
// choice that they leave open, in this order of preference:
//
//   batch-norm groups   as without a limit; smaller groups only if no other
//                       plan fits, with a warning: they change the mathematics
//   layout              the fastest (plan_time); among layouts within 5 % the
//                       simplest: data before pipeline before spatial. On cards
//                       data alone wherever a plan with it fits: pipelines and
//                       split images exchange messages, whose time between
//                       cards was never measured
//   ZeRO                none, then 1, 2, 3 if there is a data axis; a higher
//                       stage also if it saves more than 5 % of the time
//   activations         keep, then as little recompute as possible
//                       (activation_mixture.h), then offload of every layer
//   micro-batch         a rank's whole share, then the largest multiple of the
//                       group that fits; half of that, and so on, if less
//                       recompute then saves 2 % of the time
//
// A candidate fits if every rank's predicted bytes stay within --memory-limit
// (plan_memory.h). Without a limit every candidate fits; then only the layout
// is searched, and only if batch-norm groups would span distant ranks. Other
// questions are answered by searches with changed requests: remedies.h,
// replan.h, largest_batch.h, other_layouts.h.
//
// A search keeps its predictions, so further questions about the same model are
// cheaper. Not thread-safe. The layers must outlive the search.
#pragma once

#include <optional>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/card_speed.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/requested_plan.h"

namespace headroom::planner {

class PlanSearch {
 public:
  explicit PlanSearch(const ModelOnCard& model) : memory_(model) {}

  const std::vector<layers::LayerCost>& layers() const {
    return memory_.layers();
  }
  const ModelOnCard& model() const { return memory_.model(); }

  // Returns the preferred plan that fits, with its predicted bytes; or a
  // refusal if no plan fits. A refusal with exit code 3 names the bytes of the
  // smallest candidate and the limit; it has no remedy (see remedies.h).
  // Without layers a plan has no predicted bytes. REQUIRES: world_size >= 1;
  // layers if plan_needs_layers(config).
  PlanDecision best(const configs::RunConfig& config, int world_size);

  // Returns any plan that fits, without predicted bytes; no value if best()
  // would also find none. Much faster than best(), because it tries the
  // smallest candidates first.
  std::optional<plan::Plan> any(const configs::RunConfig& config,
                                int world_size);

 private:
  PlanMemory memory_;
};

}  // namespace headroom::planner
