// step_shape: what the memory model wants to know of a batch.
//
// Threads: a pure function.
#pragma once

#include "parallel/collectives/mesh.h"
#include "parallel/plan/memory_model.h"
#include "worker/data/batch.h"
#include "worker/model/layer_graph.h"

namespace headroom {

// Matches are counted where the loss is.
StepShape step_shape(const Batch& batch, const Mesh& mesh,
                     const LayerGraph& model);

}  // namespace headroom
