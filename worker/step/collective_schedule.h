// CollectiveSchedule: what a forward and a backward of one rank's layers
// exchange with other ranks (parallel/spatial/exchange_list.h).
//
// Recorded at the start of a run from two images of one block, with a copy of
// the layers, so that no rank and no split is involved.
//
// Threads: a value.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/spatial/exchange_list.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {

struct CollectiveSchedule {
  std::vector<spatial::ExchangeStep> forward;
  std::vector<spatial::ExchangeStep> backward;
};

// Layers [0, freeze) do not learn. `images_are_split`: with halo rows.
CollectiveSchedule record_pass_lists(const layers::ModelTable& table,
                                     int64_t num_classes,
                                     at::ScalarType scalar_type,
                                     model::LayerGraph::LayerRange layers,
                                     int64_t freeze, bool images_are_split);

}  // namespace headroom::step
