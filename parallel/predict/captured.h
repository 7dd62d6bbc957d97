// captured_step_bytes: what a step takes whose layers were captured as graphs
// of the device (worker/step/cuda_graph_runner.h).
//
// Graphs keep what the layers take at their fullest, forward and backward, with
// images of their own, heads and the gradients of heads. Beside that comes at
// any time either the loss or what images become the network's input in.
//
// Threads: a pure function.
#pragma once

#include <cstdint>

#include "parallel/predict/loss.h"
#include "parallel/predict/op_context.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::predict {

// Of a micro-batch. REQUIRES: the whole model.
int64_t captured_step_bytes(const SimulatedStage& stage,
                            const MicroBatchShape& extents,
                            const LossShape& loss);

}  // namespace headroom::predict
