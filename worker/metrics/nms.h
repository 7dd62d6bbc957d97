// Non-maximum suppression: turns the decoded head into the boxes of each image.
//
// YOLOv5's steps: keep rows whose objectness exceeds the confidence threshold;
// score = objectness * class; take every class above the threshold
// (multi-label) or the best one; sort by score and keep at most max_candidates;
// suppress greedily boxes of the same class that overlap by more than the
// threshold; keep the first max_detections.
//
// It differs from YOLOv5 in two ways, which both correct faults. Classes are
// real groups: YOLOv5 shifts classes apart by 7680 px, which rounds the
// coordinates of high classes and mixes classes in larger images. And there is
// no time limit that drops images. Equal scores keep the order of the rows.
//
// Images are processed in parallel on the host. If predictions are on a device,
// only rows that can give a detection are copied, unless there are many such
// rows. The suppression compares each candidate with all kept boxes of its
// class, so its time is quadratic in their number; max_candidates and
// max_detections limit it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/metrics/detection.h"

namespace headroom::metrics {

// A higher confidence_threshold is faster, but lowers mAP, which also counts
// detections of low confidence. A higher iou_threshold keeps more boxes that
// overlap. max_candidates limits the time that one image may take.
struct NmsOptions {
  double confidence_threshold = 0.001;
  double iou_threshold = 0.6;
  int64_t max_detections = 300;  // largest number per image
  bool multi_label = true;       // has no effect if there is one class
  bool agnostic = false;         // boxes of other classes also suppress a box
  std::vector<int64_t> classes;  // returns only these classes; empty for all
  int64_t max_candidates = 30000;
};

// Stands for the threshold of the network's head. Heads without anchors are
// published with 0.7, in validation and in detection.
inline constexpr double kIouOfHead = -1;
constexpr double iou_threshold_of(double given, bool has_anchors,
                                  double with_anchors) {
  if (given >= 0) return given;
  return has_anchors ? with_anchors : 0.7;
}

// `decoded` is [N, rows, 5 + classes]: centre and size in pixels, objectness
// and class scores in 0..1 (LayerGraph::decode). Computed in float32.
// Detections of an image are in descending confidence.
std::vector<std::vector<Detection>> non_maximum_suppression(
    const at::Tensor& decoded, const NmsOptions& options);

}  // namespace headroom::metrics
