// find_anchors: headroom-worker find-anchors DATA.YAML, which anchors a run
// trains with. The launcher asks before it starts the run and writes the answer
// into the run's definition, so that every rank, layout and resume has the
// same (anchors/README.md).
//
// Reads labels and image headers. Errors: Error (exit 2 for the request, exit 4
// for the data).
#pragma once

#include <cstdint>
#include <string>

namespace headroom {

struct FindAnchorsRequest {
  std::string data;     // data.yaml
  std::string model;    // --cfg, or what the weights say they hold
  std::string weights;  // whose anchors are judged; "": the model's
  int64_t image_height = 640;
  int64_t image_width = 640;
  double threshold = 4;  // hyp.anchor_t
  double per_level = 0;  // hyp.anchors
  bool keep = false;     // judge nothing (--noautoanchor)
  bool single_cls = false;
  uint64_t seed = 0;
  int64_t threads = 8;
};

// One line of JSON: anchors and anchors_reason, the run's keys of these names.
std::string find_anchors_json(const FindAnchorsRequest& request);

}  // namespace headroom
