// COCO's twelve figures (pycocotools' COCOeval for boxes), in float64, with
// crowds and object sizes.
//
//   matching   per image and class, detections in descending score; each takes
//              the object with the best IoU that is free, or a crowd; an object
//              that counts goes before one that is ignored
//   ignored    crowds, and objects outside the range of areas; detections that
//              took one, and untaken detections outside the range
//   crowd      IoU = intersection / area of the detection; may be taken by many
//   curve      precision by step at 101 recalls, 0 beyond the last
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/metrics/average_precision.h"

namespace headroom::metrics {

// Average precision by COCO's definition (pycocotools), area "all", maxDets
// 100.
//
// It differs from average_precision.h in the matching (a detection whose best
// object is taken may take another; at most 100 detections per image and
// class) and in the curve (precision by step at 101 recalls, 0 beyond the
// last; a perfect class has 1). Labels of the YOLO format know no crowds, so
// nothing is ignored. coco_evaluation.h has all twelve figures, crowds too.

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

// Pixels; `area` is the object's own (of its outline), not the box's.
struct CocoObject {
  double x = 0, y = 0, w = 0, h = 0;
  double area = 0;
  int32_t class_index = 0;
  bool crowd = false;
};

struct CocoDetection {
  double x = 0, y = 0, w = 0, h = 0;
  double score = 0;
  int32_t class_index = 0;
};

struct CocoScene {
  std::vector<CocoObject> objects;
  std::vector<CocoDetection> detections;  // any order; of equals the first
};

// Sizes: side of a square of the same area below 32 px, to 96 px, above.
enum class CocoArea { kAll, kSmall, kMedium, kLarge };
inline constexpr size_t kNumCocoAreas = 4;
inline constexpr std::array<const char*, kNumCocoAreas> kCocoAreaNames{
    "all", "small", "medium", "large"};

// -1 where no object counts, as pycocotools writes it.
struct CocoFigures {
  int64_t objects = 0;  // objects that count
  double ap = -1, ap50 = -1, ap75 = -1;
  double ar1 = -1, ar10 = -1, ar = -1;  // 1, 10 and max_detections boxes
};

struct CocoEvaluation {
  std::array<CocoFigures, kNumCocoAreas> by_area;
  // [class]; means over classes are taken over those with objects that count.
  std::vector<std::array<CocoFigures, kNumCocoAreas>> classes;

  // AP AP50 AP75 APs APm APl AR1 AR10 AR ARs ARm ARl.
  std::array<double, 12> stats() const;
};

// `max_detections` per image and class. REQUIRES: 0 <= class_index <
// num_classes.
CocoEvaluation evaluate_coco(std::span<const CocoScene> scenes,
                             int64_t num_classes, int64_t max_detections = 100);

}  // namespace headroom::metrics
