// capture_rule: may a plan's rows be captured as graphs of a device, forward
// and backward (worker/step/captured_rows.h)? Nothing in them may wait for
// another rank or for the host, and the micro-batches of a step must have one
// size.
//
// Threads: a pure function.
#pragma once

#include <optional>
#include <string>

#include "parallel/plan/batch_split.h"
#include "parallel/plan/plan.h"

namespace headroom::plan {

// Why not, in words; nothing: they may.
std::optional<std::string> why_not_captured(const Plan& plan,
                                            const BatchCut& cut);

}  // namespace headroom::plan
