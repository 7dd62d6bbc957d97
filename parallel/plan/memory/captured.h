// captured_step_bytes: what a step takes whose rows were captured as graphs of
// the device (worker/captured_rows.h).
//
// Graphs keep what the rows take at their fullest, forward and backward, with
// images of their own, heads and the gradients of heads. Beside that comes at
// any time either the loss or what images become the network's input in.
//
// Threads: a pure function.
#pragma once

#include <cstdint>

#include "parallel/plan/memory/loss.h"
#include "parallel/plan/memory/pass.h"
#include "parallel/plan/memory/stage.h"

namespace headroom::memory {

// Of a micro-batch. REQUIRES: the whole model.
int64_t captured_step_bytes(const Stage& stage, const Extents& extents,
                            const LossShape& loss);

}  // namespace headroom::memory
