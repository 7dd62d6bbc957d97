// What a new run wants to know of its data set, asked of the program that reads
// data sets and weights, headroom-worker answer, a child of its own: how many
// boxes the images have, which the plan's bytes depend on, and which anchors
// answer for them. Both at once where both are wanted: the child starts once
// and reads the data set once. The answers become part of the run's definition
// (RunConfig::label_counts, anchors), so they are the same on every rank, under
// every layout and after --resume.
//
// Errors: Error, as worker_question.h.
#pragma once

#include <functional>

#include "configs/run_config.h"

namespace headroom::cli {

struct DatasetQuery {
  bool label_counts = false;
  bool anchors = false;
};

// Fills in label_counts; anchors and anchors_reason. REQUIRES: config.data;
// for anchors wants_anchors(config).
using AskData =
    std::function<void(configs::RunConfig& config, DatasetQuery question)>;

void ask_data(configs::RunConfig& config, DatasetQuery question);

// What the start of an earlier run found, where its run.yaml is the --config of
// a new one. Anchors that somebody wrote have no reason beside them, and stay.
void forget_found_anchors(configs::RunConfig& config);

// Nothing is asked of a run that is resumed, validates, names its anchors, has
// its answer or has no data set.
bool wants_anchors(const configs::RunConfig& config);

// Were they judged for this start, and not for that of the run it resumes?
bool has_judged_anchors(const configs::RunConfig& config);

}  // namespace headroom::cli
