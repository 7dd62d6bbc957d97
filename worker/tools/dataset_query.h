// dataset_query: headroom-worker answer FD KEY..., what a launcher wants to
// know of the training images before it starts the run whose run.yaml is behind
// the file descriptor FD. The keys are label_counts (how many boxes the images
// have, for the plan), anchors (which fit them, anchors/README.md) and
// value_range (which values their percentiles are). One index of the data set
// answers all. The answers become part of the run's definition, so that every
// rank, layout and resume has the same.
//
// Reads label files, image headers where anchors are judged, and pixels of some
// images where percentiles are measured. Errors: Error (exit 2 for the request,
// exit 4 for the data).
#pragma once

#include <string>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::tools {

// One line of JSON: the run's keys that were asked for; anchors_reason with the
// anchors. `words` are FD and the keys.
std::string data_answer_json(const std::vector<std::string>& words);

// The answer where there is none: {"refusal": {"tag", "text", "remedy"}}.
std::string refusal_json(const Error& error);

}  // namespace headroom::tools
