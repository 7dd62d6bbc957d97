// step_shape: what the memory model wants to know of a batch.
//
// Threads: a pure function.
#pragma once

#include "parallel/collectives/mesh.h"
#include "parallel/predict/memory_model.h"
#include "worker/data/loader/batch.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {

// Matches are counted where the loss is.
predict::StepShape step_shape(const loader::Batch& batch,
                              const collectives::Mesh& mesh,
                              const model::LayerGraph& model);

}  // namespace headroom::step
