// dataset_query: `headroom-worker answer FD KEY...` returns the facts about the
// training images that a launcher needs before it starts the run whose run.yaml
// is read from the file descriptor FD. The keys: label_counts (the number of
// boxes, for the plan), anchors (anchors that fit them, anchors/README.md) and
// value_range (the percentiles of the pixel values). One index of the data set
// serves all of them. The answers become part of the run's definition, so they
// are equal on every rank, for every layout and after a resume.
//
// Reads label files, image headers if anchors are judged, and the pixels of
// some images if percentiles are measured. Errors: Error (exit 2 if the request
// is wrong, exit 4 if the data is), which the launcher gets through the refusal
// channel (proto/refusal_channel.h).
#pragma once

#include <string>
#include <vector>

namespace headroom::tools {

// Returns one line of JSON with the requested keys; with anchors also
// anchors_reason. `words`: FD and the keys.
std::string data_answer_json(const std::vector<std::string>& words);

}  // namespace headroom::tools
