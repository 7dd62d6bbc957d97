// Which anchors a new run trains with, asked of the program that reads data
// sets and weights: headroom-worker find-anchors, a child of its own. The
// answer becomes part of the run's definition (RunConfig::anchors), so it is
// the same on every rank, under every layout and after --resume.
//
// Errors: Error, as worker_question.h.
#pragma once

#include "configs/run_config.h"

namespace headroom {

// What the start of an earlier run found, where its run.yaml is the --config of
// a new one. Anchors that somebody wrote have no reason beside them, and stay.
void forget_found_anchors(RunConfig& config);

// Nothing is asked of a run that is resumed, validates, names its anchors or
// has no data set.
bool wants_anchors(const RunConfig& config);

// Fills in anchors and anchors_reason. REQUIRES: wants_anchors(config).
void settle_anchors(RunConfig& config);

}  // namespace headroom
