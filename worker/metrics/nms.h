// Non-maximum suppression: from a decoded head to the boxes of each image.
//
// YOLOv5's steps: keep rows whose objectness exceeds the confidence threshold;
// score = objectness * class; every class above the threshold (multi-label) or
// the best one; sort by score, at most max_candidates; greedy suppression of
// boxes of the same class that overlap by more than the threshold; the first
// max_detections.
//
// Two deviations, both repairs: classes are true groups (shifting them apart by
// 7680 px rounds the coordinates of high classes and mixes classes in larger
// images), and there is no time limit that drops images. Equal scores keep the
// order of the rows.
// Images are handled in parallel, on the host. Of predictions on a device the
// rows that can give a detection are picked out there, and only they are
// copied, unless most of them are left.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/metrics/detection.h"

namespace headroom::metrics {

struct NmsOptions {
  double confidence_threshold = 0.001;
  double iou_threshold = 0.6;
  int64_t max_detections = 300;  // the most of an image
  bool multi_label = true;       // means nothing with one class
  bool agnostic = false;         // boxes of other classes suppress too
  std::vector<int64_t> classes;  // only these; empty: all
  int64_t max_candidates = 30000;
};

// decoded [N, rows, 5 + classes]: centre and size in pixels, objectness and
// class scores in 0..1 (LayerGraph::decode); computed in float32. Detections of
// an image are in descending confidence.
std::vector<std::vector<Detection>> non_maximum_suppression(
    const at::Tensor& decoded, const NmsOptions& options);

}  // namespace headroom::metrics
