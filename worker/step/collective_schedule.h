// CollectiveSchedule: what a forward and a backward of one rank's layers
// exchange with other ranks (parallel/spatial/completable_exchange.h).
//
// Recorded at the start of a run from two images of one block, with a copy of
// the layers, so that no rank and no split is involved.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/spatial/completable_exchange.h"
#include "parallel/zero/collective_list.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {

struct CollectiveSchedule {
  std::vector<spatial::ExchangeStep> forward;
  std::vector<spatial::ExchangeStep> backward;
};

// Layers [0, freeze) do not learn. With `images_are_split` there are exchanges
// of halo rows.
CollectiveSchedule record_collective_schedule(
    const layers::ModelTable& table, int64_t num_classes,
    at::ScalarType scalar_type, model::LayerGraph::LayerRange layers,
    int64_t freeze, bool images_are_split);

// The order in which a pass's two kinds of collectives come, and how a rank
// that failed takes part in the rest of them.
//
// Exchanges (halo rows, batch-norm sums) and collectives of whole layers
// (ZeRO's gathers and scatters) are separate lists. Both name the model's layer
// of each entry, and layers run in order:
//
//   forward    per layer, ascending:   gather, exchanges
//   backward   per layer, descending:  gather, exchanges, scatter
//
// The scatter comes last since a layer's last gradient is that of its first
// convolution, whose backward ends with its exchange; autograd adds a gradient
// up before it goes on.
enum class PassEntry : uint8_t { kExchange, kLayerCollective };

// `exchange_layers[i]`: the layer of exchange i; `collective_layers[i]` that of
// collectives[i]. Pure.
std::vector<PassEntry> merged_pass(
    pipeline::Instruction::Kind kind,
    const std::vector<int64_t>& exchange_layers,
    const std::vector<zero::LayerCollective>& collectives,
    const std::vector<int64_t>& collective_layers);

// Takes part in the rest of a pass, whose merged list is `entries`, after this
// rank stopped behind `num_collectives` of layers. Throws what completing
// throws.
void complete_merged(const std::vector<PassEntry>& entries,
                     spatial::CompletableExchange& exchange,
                     size_t num_collectives,
                     const std::function<void()>& complete_next_collective);

// Empties autograd's queue, which after an exception keeps nodes, and what they
// saved, until the thread's next backward.
void release_failed_graph();

}  // namespace headroom::step
