// COCO's twelve metrics as pycocotools' COCOeval computes them for boxes, in
// float64, with crowds and object sizes.
//
//   matching   per image and class, detections in descending score; each takes
//              the object with the best IoU that is not taken yet, or a crowd;
//              objects that count are preferred to ignored ones
//   ignored    crowds, and objects outside the range of areas; detections that
//              took one of these, and unmatched detections outside the range
//   crowd      IoU = intersection / area of the detection; may be taken often
//   curve      step-wise precision at 101 recalls, 0 beyond the last
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/metrics/average_precision.h"

namespace headroom::metrics {

// Average precision by COCO's definition (pycocotools), for area "all" and
// maxDets 100.
//
// It differs from average_precision.h in two ways. Matching: a detection whose
// best object is taken may take another, and at most 100 detections count per
// image and class. Curve: step-wise precision at 101 recalls, 0 beyond the
// last; a perfect class has 1. YOLO's label format has no crowds, so nothing is
// ignored. evaluate_coco() below has all twelve metrics, with crowds.

// Threshold i in float64, computed by pycocotools' formula, so that an IoU
// equal to a threshold falls on the same side.
double coco_threshold(size_t i);

// The mean over 101 recalls of step-wise precision, which is 0 beyond the last
// recall of the curve.
double coco_step_average(const PrecisionCurve& curve);

// Matches the detections of one image. Returns the detections that count, in
// the order given. REQUIRES: detections in descending confidence.
std::vector<DetectionRecord> coco_match_records(
    std::span<const Detection> detections, std::span<const LabelledBox> labels,
    int64_t max_detections = 100);

struct CocoClassPrecision {
  int64_t class_index = 0;
  double ap50 = 0;
  double ap = 0;
};

// Means over the classes that have labels; zeros if no class has labels.
struct CocoAveragePrecision {
  double map50 = 0;
  double map = 0;
  std::vector<CocoClassPrecision> classes;  // classes with labels, ascending
};

// Appends one class to result.classes. `ranking`: its records of
// coco_match_records. Classes with labels come in ascending order, then
// take_means().
void add_class(const ClassRanking& ranking, int64_t class_index, int64_t labels,
               CocoAveragePrecision& result);
void take_means(CocoAveragePrecision& result);

// Takes the records of coco_match_records, pooled in the order of the images.
CocoAveragePrecision compute_coco_average_precision(
    std::span<const DetectionRecord> records,
    std::span<const int64_t> labels_per_class);

// Boxes are in pixels. `area` is the area of the object's outline, not of its
// box.
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
  // In any order; among equal scores the first detection is preferred.
  std::vector<CocoDetection> detections;
};

// Sizes by the area: below 32 x 32 pixels, up to 96 x 96, and above.
enum class CocoArea { kAll, kSmall, kMedium, kLarge };
inline constexpr size_t kNumCocoAreas = 4;
inline constexpr std::array<const char*, kNumCocoAreas> kCocoAreaNames{
    "all", "small", "medium", "large"};

// A metric is -1 if no object counts, as in pycocotools.
struct CocoFigures {
  int64_t objects = 0;  // objects that count
  double ap = -1, ap50 = -1, ap75 = -1;
  // recall with at most 1, 10 and max_detections boxes per image and class
  double ar1 = -1, ar10 = -1, ar = -1;
};

struct CocoEvaluation {
  std::array<CocoFigures, kNumCocoAreas> by_area;
  // Figures by class. Means over classes skip classes without objects that
  // count.
  std::vector<std::array<CocoFigures, kNumCocoAreas>> classes;

  // Figures in pycocotools' order: AP AP50 AP75 APs APm APl AR1 AR10 AR ARs ARm
  // ARl.
  std::array<double, 12> stats() const;
};

// `max_detections` applies per image and class. REQUIRES: 0 <= class_index <
// num_classes.
CocoEvaluation evaluate_coco(std::span<const CocoScene> scenes,
                             int64_t num_classes, int64_t max_detections = 100);

}  // namespace headroom::metrics
