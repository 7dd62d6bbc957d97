// Whether a plan's layers can be captured as graphs of a device, forward and
// backward (worker/step/cuda_graph_runner.h). Nothing in them may wait for
// another rank or for the host, and the micro-batches of a step must have one
// size.
#pragma once

#include <optional>
#include <string>

#include "parallel/plan/batch_split.h"
#include "parallel/plan/plan.h"

namespace headroom::plan {

// The reason why they cannot be captured; nothing where they can.
std::optional<std::string> capture_error(const Plan& plan, const BatchCut& cut);

}  // namespace headroom::plan
