// dataset_query: headroom-worker answer DATA.YAML, what a launcher wants to
// know of the training images before it starts a run: how many boxes they have,
// for the plan, and which anchors fit them (anchors/README.md). One
// index of the data set answers both. The answers become part of the run's
// definition, so that every rank, layout and resume has the same.
//
// Reads label files, and image headers where anchors are judged. Errors: Error
// (exit 2 for the request, exit 4 for the data).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parallel/base/check.h"

namespace headroom::tools {

struct WhichAnchors {
  std::string model;    // --cfg, or what the weights say they hold
  std::string weights;  // the file whose anchors are judged; "": the model's
  int64_t image_height = 640;
  int64_t image_width = 640;
  bool random_crop = false;  // larger images are cut, not shrunk
  double threshold = 4;      // hyp.anchor_t
  double per_level = 0;      // hyp.anchors
  bool keep = false;         // judge nothing (--noautoanchor)
  uint64_t seed = 0;
};

struct DatasetQuery {
  std::string data;  // data.yaml
  bool single_cls = false;
  int64_t threads = 8;
  bool label_counts = false;
  std::optional<WhichAnchors> anchors;
};

// One line of JSON: of label_counts, anchors and anchors_reason, the run's keys
// of these names, those that were asked for.
std::string data_answer_json(const DatasetQuery& question);

// The answer where there is none: {"refusal": {"tag", "text", "remedy"}}.
std::string refusal_json(const Error& error);

}  // namespace headroom::tools
