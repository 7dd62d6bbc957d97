// Average precision by COCO's definition (pycocotools), area "all", maxDets
// 100.
//
// It differs from average_precision.h in the matching (a detection whose best
// object is taken may take another; at most 100 detections per image and
// class) and in the curve (precision by step at 101 recalls, 0 beyond the
// last; a perfect class has 1). Labels of the YOLO format know no crowds, so
// nothing is ignored. coco_evaluation.h has all twelve figures, crowds too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/metrics/average_precision.h"

namespace headroom::metrics {

struct PrecisionCurve;

// Threshold i in float64, from the same formula as the reference: an IoU that
// equals a threshold must fall on the same side of it.
double coco_threshold(size_t i);

// Average over 101 recalls of precision by step, 0 beyond the last recall.
double coco_step_average(const PrecisionCurve& curve);

// One image; returns the detections that count, in the order given.
// REQUIRES: detections in descending confidence.
std::vector<DetectionRecord> coco_match_records(
    std::span<const Detection> detections, std::span<const LabelledBox> labels,
    int64_t max_detections = 100);

struct CocoClassPrecision {
  int64_t class_index = 0;
  double ap50 = 0;
  double ap = 0;
};

// Means over the classes that have labels; zeros when none has.
struct CocoAveragePrecision {
  double map50 = 0;
  double map = 0;
  std::vector<CocoClassPrecision> classes;  // those with labels, ascending
};

// Records of coco_match_records, pooled in the order of the images.
CocoAveragePrecision compute_coco_average_precision(
    std::span<const DetectionRecord> records,
    std::span<const int64_t> labels_per_class);

}  // namespace headroom::metrics
