// What a launcher has to know of a new run's data set, asked of the program
// that reads data sets and weights (headroom-worker answer), a child: how many
// boxes the images have, which the plan's bytes depend on, and which anchors
// suit them. Where both are wanted, the child reads the data set once. The
// answers become part of the run's definition (RunConfig::label_counts,
// anchors), so that they are the same on every rank, under every layout and
// after --resume.
//
// Errors: Error (the child's own refusal, exit 2 or 4; exit 5 if it fails
// otherwise, 130 if somebody interrupts).
#pragma once

#include <functional>

#include "configs/run_config.h"

namespace headroom::cli {

struct WantedFacts {
  bool label_counts = false;
  bool anchors = false;
  bool value_range = false;
  bool any() const { return label_counts || anchors || value_range; }
};

// Fills in label_counts, value_range, or anchors and anchors_reason. REQUIRES:
// config.data; for anchors wants_anchors(config).
using AskData =
    std::function<void(configs::RunConfig& config, WantedFacts wanted)>;

void ask_data(configs::RunConfig& config, WantedFacts wanted);

// Clears what the start of an earlier run found, where its run.yaml is the
// --config of a new one. Anchors that somebody wrote have no reason beside them
// and stay.
void forget_found_anchors(configs::RunConfig& config);

// Takes over the range that data.yaml names, if this is a new run's to train
// on. True where it asks for percentiles, which have to be measured.
bool take_value_range(configs::RunConfig& config);

// False for a run that is resumed, validates, names its anchors, has its answer
// or has no data set.
bool wants_anchors(const configs::RunConfig& config);

// Whether anchors were judged for this start, not for that of the run it
// resumes.
bool has_judged_anchors(const configs::RunConfig& config);

}  // namespace headroom::cli
