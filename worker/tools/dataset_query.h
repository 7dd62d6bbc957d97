// dataset_query: headroom-worker answer DATA.YAML, what a launcher wants to
// know of the training images before it starts a run: how many boxes they have,
// for the plan, which anchors fit them (anchors/README.md), and which values
// their percentiles are. One index of the data set answers all. The answers
// become part of the run's definition, so that every rank, layout and resume
// has the same.
//
// Reads label files, image headers where anchors are judged, and pixels of some
// images where percentiles are measured. Errors: Error
// (exit 2 for the request, exit 4 for the data).
#pragma once

#include <string>

#include "configs/worker_flags.h"
#include "parallel/base/check.h"

namespace headroom::tools {

// One line of JSON: of label_counts, value_range, anchors and anchors_reason,
// the run's keys of these names, those that were asked for.
std::string data_answer_json(const configs::DatasetQuery& question);

// The answer where there is none: {"refusal": {"tag", "text", "remedy"}}.
std::string refusal_json(const Error& error);

}  // namespace headroom::tools
