// Asks headroom-worker, as a child process, for facts about a new run's data
// set: the number of boxes per image (the plan's bytes depend on it), the range
// of the pixel values, and anchors that suit the boxes. If several facts are
// wanted, the child reads the data set once. The answers become part of the
// run's definition (RunConfig::label_counts, value_range, anchors), so they are
// equal on every rank, under every layout and after --resume.
//
// Errors: Error with the child's own refusal (exit 2 or 4), exit 5 if the child
// fails otherwise, 130 if the user interrupts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "configs/run_config.h"

namespace headroom::cli {

struct WantedFacts {
  bool label_counts = false;
  bool anchors = false;
  bool value_range = false;
  bool any() const { return label_counts || anchors || value_range; }
};

// Fills in the wanted facts: label_counts; value_range; anchors and
// anchors_reason. REQUIRES: config.data is set; for anchors,
// wants_anchors(config) is true.
using AskData =
    std::function<void(configs::RunConfig& config, WantedFacts wanted)>;

void ask_data(configs::RunConfig& config, WantedFacts wanted);

// Clears the anchors that an earlier run has found, if its run.yaml is the
// --config of a new run. Anchors of the user, which have no `anchors_reason`,
// are kept.
void forget_found_anchors(configs::RunConfig& config);

// Copies the range of pixel values that data.yaml names into the config, if the
// run is a new training. Returns true if data.yaml asks for percentiles, which
// must be measured first.
bool take_value_range(configs::RunConfig& config);

// Whether the optimizer auto still needs the number of training images.
bool counts_for_optimizer(const configs::RunConfig& config);

// Replaces the optimizer auto (configs/recipe.h) and adds a line about it, if
// the number of training images is known: from label_counts, or synthetic.
void take_optimizer(configs::RunConfig& config,
                    std::vector<std::string>& notes);

// Returns false if the run is resumed, only validates, was given anchors, has
// judged its anchors already, or has no data set.
bool wants_anchors(const configs::RunConfig& config);

// Whether anchors were judged for a new run; false if a run is resumed.
bool has_judged_anchors(const configs::RunConfig& config);

}  // namespace headroom::cli
