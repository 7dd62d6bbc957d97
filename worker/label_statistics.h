// label_statistics: headroom-worker label-statistics DATA.YAML, what a plan
// wants to know of the training images' labels. The launcher asks before it
// plans; it reads no data set itself.
//
// Reads label files only. Errors: Error (exit 2 for the request, exit 4 for the
// data).
#pragma once

#include <cstdint>
#include <string>

namespace headroom {

struct LabelStatisticsRequest {
  std::string data;  // data.yaml
  bool single_cls = false;
  int64_t threads = 8;
};

// One line of JSON: images, boxes, most_boxes, mean, variance, label_counts
// (the run's key of that name).
std::string label_statistics_json(const LabelStatisticsRequest& request);

}  // namespace headroom
